"""Runs the rungs of a successive halving; runs resume from rung to rung."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from fedavg_app.budget import parse_budget
from fedavg_app.config import RunConfig
from fedavg_app.results.checkpoint import delete_checkpoint
from fedavg_app.results.finished_run import FINISHED, FinishedRun, read_run
from fedavg_app.sweep.halving import MIN_ROUNDS, Judged, Limits, Reached, successive_halving
from fedavg_app.sweep.planned_run import PlannedRun, finished_folder
from fedavg_app.sweep.run_all import run_all
from fedavg_app.sweep.run_process import Launch, RunProcess
from tasks.objective import Objective

# The methods that `fedavg plan` tries by default, as variants of a grid: those that sent least in
# the project's own measurements (docs/choosing-a-compressor.md), from few large messages to many
# small ones.
_STC = "sparsity-up = {0}, sparsity-down = {0}"
_BOTH_WAYS = (
    "uplink = {name = 'rotated', unbiased = false}, downlink = {name = 'rotated', unbiased = false}"
)

CANDIDATES: list[dict[str, Any]] = [
    {"strategy": "fedavg", "local-steps": [25, 100, 400]},
    {"strategy": "fedsgd"},
    {"strategy": "stc", "strategy-args": _STC.format(0.04), "local-steps": [1, 25, 100]},
    {"strategy": "stc", "strategy-args": _STC.format(0.01), "local-steps": [1, 25, 100]},
    {"strategy": "stc", "strategy-args": _STC.format(0.0025), "local-steps": [1, 25]},
    {"strategy": "eden", "strategy-args": "bits = 1", "local-steps": [1, 25, 100]},
    {"strategy": "qsgd", "strategy-args": "bits = 4", "local-steps": [1, 25, 100]},
    {"strategy": "topk", "strategy-args": "sparsity-up = 0.01", "local-steps": [1, 25]},
    {"strategy": "compressed", "strategy-args": _BOTH_WAYS, "local-steps": [1, 25, 100]},
]


def limits_of(config: Mapping[str, Any]) -> Limits:
    """Return what a run may spend whose settings, by kebab-case key, have a budget."""
    budget, _ = parse_budget(config["budget"])
    return Limits(budget, config["num-server-rounds"], config["num-clients"])


def run_rungs(
    name: str,
    candidates: Sequence[PlannedRun],
    objective: Objective,
    folder: Path,
    launch: Launch,
    jobs: int,
    describe: Callable[[Mapping[str, Any]], str],
) -> list[Judged[PlannedRun]]:
    """Return the candidates, the best first; it and some others have spent their budget.

    A call continues what an interrupted call has done.

    Args:
        name: Of the plan, for what is printed.
        candidates: Runs with the whole budget.
        objective: Theirs.
        folder: Where each run has a folder.
        launch: Starts a run.
        jobs: How many go at a time.
        describe: Returns how a run ended as text, from its summary.

    Raises:
        ConfigError: The plan is already running.
        RunError: Runs failed.
    """

    def run(left: Sequence[PlannedRun], share: Fraction) -> list[Reached]:
        _delete_checkpoints(folder, [planned for planned in candidates if planned not in left])
        rung = {planned.slug: _with_share(planned, share) for planned in left}

        def keep(job: RunProcess) -> tuple[bool, str]:
            run = _ended(folder, job.planned)
            return run is not None, describe(run.summary) if run else f"failed: {job.last_line()}"

        missing = [planned for planned in rung.values() if _ended(folder, planned) is None]
        run_all(f"{name}, {share} of the budget", missing, len(rung), folder, launch, keep, jobs)
        return [_reached(folder, planned, objective) for planned in rung.values()]

    judged = successive_halving(candidates, run, objective)
    _delete_checkpoints(folder, candidates)
    return judged


def _with_share(planned: PlannedRun, share: Fraction) -> PlannedRun:
    """Return the run with this share of its limits."""
    assert isinstance(planned.config, RunConfig)
    limits = limits_of(planned.config.model_dump(by_alias=True)).share(share)
    update = {"budget": str(limits.budget), "num_server_rounds": limits.rounds}
    return replace(planned, config=planned.config.model_copy(update=update))


def _ended(folder: Path, planned: PlannedRun) -> FinishedRun | None:
    """Return the run if it finished with these or larger limits, or diverged."""
    ended = finished_folder(folder / planned.slug)
    if ended is None:
        return None
    run, needed = read_run(ended), limits_of(planned.config.model_dump(by_alias=True))
    had = limits_of(run.config)
    enough = had.rounds >= needed.rounds and had.budget.amount >= needed.budget.amount
    return run if enough or run.status != FINISHED else None


def _reached(folder: Path, planned: PlannedRun, objective: Objective) -> Reached:
    run = _ended(folder, planned)
    assert run is not None
    if run.status != FINISHED:
        return Reached(-math.inf if objective.higher_is_better else math.inf, MIN_ROUNDS)
    limits = limits_of(planned.config.model_dump(by_alias=True))
    return limits.reached(run.history, objective, on_clients=run.on_clients)


def _delete_checkpoints(folder: Path, runs: Sequence[PlannedRun]) -> None:
    for planned in runs:
        if ended := finished_folder(folder / planned.slug):
            delete_checkpoint(ended)
