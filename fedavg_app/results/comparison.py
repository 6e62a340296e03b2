"""What trainings cost: rounds, bytes and time of whole runs, and up to a target."""

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate

from fedavg_app.errors import ConfigError
from fedavg_app.results.finished_run import FinishedRun
from fedavg_app.results.history import RoundMetrics
from fedavg_app.results.rounds_to_target import rounds_to_target
from tasks.objective import Objective

# Returns the seconds that have passed by the end of every round.
Clock = Callable[[Sequence[RoundMetrics]], list[float]]
# What a run took, by column: "rounds", "bytes_up" and so on; None for what it does not have.
Cost = dict[str, float | None]
# How the columns end that count up to a target.
TO_TARGET = "_to_target"


def wall_clock(history: Sequence[RoundMetrics]) -> list[float]:
    """Return the seconds that the run took by the end of every round."""
    return list(accumulate(metrics.seconds for metrics in history))


def one_objective(runs: Sequence[FinishedRun]) -> Objective:
    """Return the objective of all runs.

    Raises:
        ConfigError: They have different objectives.
    """
    first = runs[0]
    for run in runs:
        if run.objective != first.objective:
            fix = (
                f"its objective is {run.objective.name}, {first.folder} has {first.objective.name}"
            )
            raise ConfigError(
                "RUN", str(run.folder), f"{fix}; compare runs with the same objective"
            )
    return first.objective


def cost(run: FinishedRun, clocks: Mapping[str, Clock], target: float | None = None) -> Cost:
    """Return what a run took as a whole, with its best and last values, and until a target.

    Args:
        run: The run, with a round at least.
        clocks: By the name of their column.
        target: None for none. Rounds to a target are counted as in the FedAvg paper, the rest to
            the end of the round that reached it; if none did, these values are None.
    """
    history, curve, objective = run.history, run.curve, run.objective
    best = objective.best_point(curve)
    found: Cost = {
        "rounds": history[-1].round,
        f"best_{objective.name}": best[1] if best else None,
        f"final_{objective.name}": curve[-1][1] if curve else None,
        **_spent(history, clocks),
    }
    if target is None:
        return found
    reached = (number for number, value in curve if objective.is_reached(value, target))
    last = next(reached, None)
    until = [metrics for metrics in history if last is not None and metrics.round <= last]
    spent = _spent(until, clocks) if until else dict.fromkeys(_spent(history, clocks))
    counted = {"rounds": rounds_to_target(curve, target, objective), **spent}
    return found | {key + TO_TARGET: value for key, value in counted.items()}


def _spent(history: Sequence[RoundMetrics], clocks: Mapping[str, Clock]) -> Cost:
    return {
        "rejected": sum(len(metrics.rejected) for metrics in history),
        "bytes_up": history[-1].total.get("bytes_up", 0),
        "bytes_down": history[-1].total.get("bytes_down", 0),
        **{name: clock(history)[-1] for name, clock in clocks.items()},
    }
