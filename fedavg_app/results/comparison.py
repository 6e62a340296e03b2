"""What several trainings cost, side by side: those that differ in the seed alone are one line."""

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any

from fedavg_app.config import CentralConfig, Effect, RunConfig, fields_with, kebab
from fedavg_app.errors import ConfigError
from fedavg_app.results.finished_run import FINISHED, FinishedRun
from fedavg_app.results.metrics import RoundMetrics
from fedavg_app.results.rounds_to_target import rounds_to_target
from tasks.objective import Objective

# Keys that do not affect what was computed, and the one in which runs of a line differ.
PLACES = set(map(kebab, fields_with(RunConfig, Effect.NONE)))
SEED, STRATEGY = "seed", "strategy"
# Keys that say when a training is tested and when it ends.
LENGTH = ("num-server-rounds", "evaluate-every", "target-accuracy", "target", "patience")
# Keys whose values are clear without the key's name.
SAY_IT_ALL = (STRATEGY, "strategy-args", "task", "partition", "partition-args", "links")

# Returns the seconds that have passed by the end of every round.
Clock = Callable[[Sequence[RoundMetrics]], list[float]]
# What a run took, by column: "rounds", "bytes_up" and so on; None for what it did not reach.
Cost = dict[str, float | None]


def group_runs(
    runs: Sequence[FinishedRun], labels: Sequence[str] = (), group_by: Sequence[str] = ()
) -> dict[str, list[FinishedRun]]:
    """Return the runs by the name of their line, in the order of the lines' first runs.

    By default runs that differ in nothing but the seed are one line, whose name has the keys in
    which the lines differ, with their values. Runs alike in all are lines of their own, told apart
    by their folders. Those that did not finish are a line for each status, which the name has.

    Args:
        runs: The runs.
        labels: A name for every run; those of one name and status are a line. Empty for none.
        group_by: Keys; runs with equal values and status are a line, named by the values.

    Raises:
        ConfigError: No run has such a key.
    """
    if labels:
        names = list(labels)
    else:
        names = _names([run.config for run in runs], group_by)
        if not group_by:
            names = _told_apart(_with_defaults(names, runs), runs)
    names = [
        name if run.status == FINISHED else f"{name} ({run.status})"
        for name, run in zip(names, runs, strict=True)
    ]
    return {
        name: [run for run, own in zip(runs, names, strict=True) if own == name]
        for name in dict.fromkeys(names)
    }


def _names(configs: Sequence[Mapping[str, Any]], group_by: Sequence[str]) -> list[str]:
    configs = [_complete(config) for config in configs]
    known = {key for config in configs for key in config}
    for key in group_by:
        if key not in known:
            raise ConfigError("group-by", key, f"unknown key; known: {', '.join(sorted(known))}")
    federated = [config for config in configs if STRATEGY in config]
    central = [config for config in configs if STRATEGY not in config]
    differing = _differing(federated) | _differing(central)
    if federated and central:  # whose rounds are steps
        differing |= _differing(configs) - {*LENGTH}
        keys = [STRATEGY, *sorted(differing - {STRATEGY})]
    else:
        keys = sorted(differing)
    return [_name(config, group_by or keys) for config in configs]


def _complete(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with today's defaults for keys that the run's version did not have."""
    kind = RunConfig if STRATEGY in config else CentralConfig
    return {**kind().model_dump(by_alias=True), **config}


def _differing(configs: Sequence[Mapping[str, Any]]) -> set[str]:
    """Return the keys, of those that all have, in which some differ."""
    shared = set(configs[0]).intersection(*configs[1:]) if configs else set()
    found = {key for key in shared if len({str(config[key]) for config in configs}) > 1}
    return found - {SEED, *PLACES}


def _name(config: Mapping[str, Any], keys: Sequence[str]) -> str:
    method = config.get(STRATEGY, "central")
    parts = [
        setting_text(key, method if key == STRATEGY else config[key])
        for key in keys
        if key == STRATEGY or config.get(key, "") != ""
    ]
    return ", ".join(parts) or str(method)


def setting_text(key: str, value: object) -> str:
    """Return a setting as a part of a run's name."""
    return str(value) if key in SAY_IT_ALL else f"{key} {value}"


def _with_defaults(names: Sequence[str], runs: Sequence[FinishedRun]) -> Sequence[str]:
    """Return the names, with what "auto" meant where runs of one name differ in it."""
    for meaning in (_default_rate, _data):
        found = [(name, meaning(run)) for name, run in zip(names, runs, strict=True)]
        meanings = {own: {text for name, text in found if name == own and text} for own in names}
        names = [
            f"{name}, {text}" if text and len(meanings[name]) > 1 else name for name, text in found
        ]
    return names


def _default_rate(run: FinishedRun) -> str:
    auto = run.config.get("learning-rate") == "auto" and "learning-rate" in run.summary
    return setting_text("learning-rate", run.summary["learning-rate"]) if auto else ""


def _data(run: FinishedRun) -> str:
    fingerprint = run.summary.get("data-fingerprint", "")
    return f"data {fingerprint[:8]}" if fingerprint else ""


def _told_apart(names: Sequence[str], runs: Sequence[FinishedRun]) -> list[str]:
    """Return the names, with the folder added where runs have the same name and seed."""
    seeded = [(name, run.config.get(SEED)) for name, run in zip(names, runs, strict=True)]
    return [
        f"{name} ({run.folder.name})" if seeded.count(own) > 1 else name
        for name, run, own in zip(names, runs, seeded, strict=True)
    ]


def wall_clock(history: Sequence[RoundMetrics]) -> list[float]:
    """Return the seconds that the run took by the end of every round."""
    return list(accumulate(one.seconds for one in history))


def one_objective(runs: Sequence[FinishedRun]) -> Objective:
    """Return the objective of all runs.

    Raises:
        ConfigError: They have different ones.
    """
    first = runs[0]
    for run in runs:
        if run.objective != first.objective:
            fix = f"it goes by {run.objective.name}, {first.folder} by {first.objective.name}"
            raise ConfigError("RUN", str(run.folder), f"{fix}; compare runs of one objective")
    return first.objective


def cost(run: FinishedRun, clocks: Mapping[str, Clock], target: float | None = None) -> Cost:
    """Return what a run took, as a whole or until a test reached a target.

    Args:
        run: The run, with a round at least.
        clocks: By the name of their column.
        target: None for the whole run, whose best and last values are given, too. Up to a target,
            rounds are counted as in the FedAvg paper; if it was never reached, all values are None.
    """
    rounds: float | None = run.history[-1].round
    history, curve, objective = run.history, run.curve, run.objective
    if target is not None and (rounds := rounds_to_target(curve, target, objective)) is not None:
        reached = next(number for number, value in curve if objective.is_reached(value, target))
        history = [one for one in history if one.round <= reached]
    best = objective.best_point(curve)
    values = {
        f"best_{objective.name}": best[1] if best else None,
        f"final_{objective.name}": curve[-1][1] if curve else None,
    }
    found = {
        "rounds": rounds,
        **({} if target is not None else values),
        "rejected": sum(len(one.rejected) for one in history),
        "bytes_up": history[-1].total.get("bytes_up", 0),
        "bytes_down": history[-1].total.get("bytes_down", 0),
        **{name: clock(history)[-1] for name, clock in clocks.items()},
    }
    return dict.fromkeys(found) if rounds is None else found
