"""The lines of a comparison: runs that differ only in the seed are one line."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from fedavg_app.config import CentralConfig, Effect, RunConfig, fields_with, kebab
from fedavg_app.errors import ConfigError, unknown_key
from fedavg_app.results.finished_run import FINISHED, FinishedRun
from fedavg_app.results.sweep_names import own_name, read_names

# Keys that do not affect what was computed, and the seed, in which runs of a line differ.
PLACES = set(map(kebab, fields_with(RunConfig, Effect.NONE)))
SEED, STRATEGY = "seed", "strategy"
# Keys that say when a training is tested and when it ends.
LENGTH = ("num-server-rounds", "evaluate-every", "target", "patience")
# Keys whose values are clear without the key's name.
SAY_IT_ALL = (STRATEGY, "strategy-args", "task", "partition", "partition-args", "links")


@dataclass(frozen=True)
class Line:
    """Runs of a method that ended alike.

    Attributes:
        method: The method's name.
        status: How they ended.
        runs: The runs.
        color: The number of the method's colour, the same in every figure of a sweep.
    """

    method: str
    status: str
    runs: list[FinishedRun]
    color: int

    @property
    def name(self) -> str:
        """The method, and the status of runs that did not finish."""
        return self.method if self.status == FINISHED else f"{self.method} ({self.status})"


def group_runs(
    runs: Sequence[FinishedRun], labels: Sequence[str] = (), group_by: Sequence[str] = ()
) -> list[Line]:
    """Return the lines of a comparison, in the order of a sweep's grid, or of their first runs.

    By default runs that differ only in the seed are one line. Its method's name is that of their
    sweep; otherwise it lists the keys in which the lines differ, with their values. Identical runs
    are separate lines, named by their folders. Unfinished runs are a line for each status.

    Args:
        runs: The runs.
        labels: A name for every run; runs with the same name and status are a line. Empty for none.
        group_by: Keys; runs with equal values and status are a line, named by the values.

    Raises:
        ConfigError: No run has such a key.
    """
    methods = list(labels)
    if not labels:
        methods = _names([run.config for run in runs], group_by)
        if not group_by:
            methods = _told_apart(_with_defaults(_of_sweeps(methods, runs), runs), runs)
    colors = _colors(methods, runs)
    found = [(method, run.status) for method, run in zip(methods, runs, strict=True)]
    lines = []
    for method, status in dict.fromkeys(found):
        own = [run for run, key in zip(runs, found, strict=True) if key == (method, status)]
        lines.append(Line(method, status, own, colors[method]))
    return sorted(lines, key=lambda line: line.color)


def _colors(methods: Sequence[str], runs: Sequence[FinishedRun]) -> dict[str, int]:
    """Return each method's place among those of the sweeps; others have the places left."""
    known = list(dict.fromkeys(name for run in runs for name in read_names(run.folder).values()))
    taken = {known.index(method) for method in methods if method in known}
    free = (place for place in count() if place not in taken)
    return {
        method: known.index(method) if method in known else next(free)
        for method in dict.fromkeys(methods)
    }


def _of_sweeps(names: Sequence[str], runs: Sequence[FinishedRun]) -> list[str]:
    """Return the names that the runs' sweeps gave, with the settings that differ under a name."""
    names = [own_name(run.folder) or name for name, run in zip(names, runs, strict=True)]
    for name in set(names):
        places = [place for place, own in enumerate(names) if own == name]
        settings = _names([runs[place].config for place in places], ())
        if len(set(settings)) > 1:  # such as two sweeps of the same methods
            for place, text in zip(places, settings, strict=True):
                names[place] = f"{name}, {text}"
    return names


def _names(configs: Sequence[Mapping[str, Any]], group_by: Sequence[str]) -> list[str]:
    configs = [_complete(config) for config in configs]
    known = {key for config in configs for key in config}
    for key in group_by:
        if key not in known:
            raise ConfigError("group-by", key, unknown_key(key, known))
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
    """Return the names, with what "auto" meant if runs of the same name differ in it."""
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
