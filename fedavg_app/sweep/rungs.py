"""Runs the rungs of a successive halving; a run that reaches the next goes on from the last."""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path

from fedavg_app.budget import parse_budget
from fedavg_app.config import RunConfig
from fedavg_app.results.checkpoint import delete_checkpoint
from fedavg_app.results.finished_run import FINISHED, FinishedRun, read_run
from fedavg_app.sweep.halving import MIN_ROUNDS, Judged, Limits, Reached, successive_halving
from fedavg_app.sweep.run_all import run_all
from fedavg_app.sweep.run_process import Launch, PlannedRun, RunProcess, finished_folder
from tasks.objective import Objective


def limits_of(config: RunConfig) -> Limits:
    """Return what a run with a budget may spend."""
    return Limits(parse_budget(config.budget)[0], config.num_server_rounds, config.num_clients)


class Rungs:
    """The runs of the candidates, in a folder, each for as long as it is among the best.

    What an interrupted call has done is used by the next.

    Args:
        name: Of the plan, for what is printed.
        folder: Where each run has a folder.
        launch: Starts a run.
        jobs: How many go at a time.
        describe: Returns a run's value as text.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        launch: Launch,
        jobs: int,
        describe: Callable[[FinishedRun], str],
    ) -> None:
        self._name, self._folder, self._launch, self._jobs = name, folder, launch, jobs
        self._describe = describe

    def judge(
        self, candidates: Sequence[PlannedRun], objective: Objective
    ) -> list[Judged[PlannedRun]]:
        """Return the candidates, the one to take first; it and others have run to the end.

        Raises:
            ConfigError: The plan is going on already.
            RunError: Runs failed.
        """

        def run(left: Sequence[PlannedRun], share: Fraction) -> list[Reached]:
            for one in candidates:
                if one not in left and (ended := finished_folder(self._folder / one.slug)):
                    delete_checkpoint(ended)
            self._run(left, share)
            return [self._reached(one, share, objective) for one in left]

        judged = successive_halving(candidates, run, objective)
        for one in candidates:
            if ended := finished_folder(self._folder / one.slug):
                delete_checkpoint(ended)
        return judged

    def finished(self, candidate: PlannedRun, share: Fraction) -> FinishedRun | None:
        """Return the candidate's run if it has come to the end of this share, or diverged."""
        ended = finished_folder(self._folder / candidate.slug)
        if ended is None:
            return None
        run, wanted = read_run(ended), self._config(candidate, share)
        had = limits_of(wanted.model_copy(update=_limits_in(run)))
        needed = limits_of(wanted)
        enough = had.rounds >= needed.rounds and had.budget.amount >= needed.budget.amount
        return run if enough or run.status != FINISHED else None

    def _run(self, left: Sequence[PlannedRun], share: Fraction) -> None:
        planned = [
            PlannedRun(one.name, one.slug, self._config(one, share)) for one in left
        ]  # fmt: skip
        by_slug = {one.slug: one for one in left}

        def keep(job: RunProcess) -> tuple[bool, str]:
            run = self.finished(by_slug[job.planned.slug], share)
            if run is None:
                return False, f"failed: {job.last_line()}"
            return True, self._describe(run)

        missing = [one for one in planned if self.finished(by_slug[one.slug], share) is None]
        name = f"{self._name}, {share} of the budget"
        run_all(name, missing, len(planned), self._folder, self._launch, keep, self._jobs)

    def _reached(self, one: PlannedRun, share: Fraction, objective: Objective) -> Reached:
        run = self.finished(one, share)
        assert run is not None
        if run.status != FINISHED:
            worst = -math.inf if objective.higher_is_better else math.inf
            return Reached(worst, MIN_ROUNDS)
        limits = limits_of(self._config(one, share))
        return limits.reached(run.history, objective, on_clients=run.on_clients)

    def _config(self, one: PlannedRun, share: Fraction) -> RunConfig:
        """Return the config of a candidate's run to the end of a share."""
        assert isinstance(one.config, RunConfig)
        limits = limits_of(one.config).share(share)
        update = {"budget": str(limits.budget), "num_server_rounds": limits.rounds}
        return one.config.model_copy(update=update)


def _limits_in(run: FinishedRun) -> dict[str, str | int]:
    return {
        "budget": run.config["budget"],
        "num_server_rounds": run.config["num-server-rounds"],
    }
