"""The lines of a comparison: runs that differ only in the seed are one line, and its name.

A sweep names its methods in a file of its folder, in which every run has a folder of its own.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedavg_app.config import (
    OF_A_GRADIENT,
    CentralConfig,
    Effect,
    RunConfig,
    fields_with,
    kebab,
)
from fedavg_app.errors import ConfigError, unknown_key
from fedavg_app.results.finished_run import FINISHED, FinishedRun
from tasks.training.training_settings import LocalWork

NAMES_FILE = "sweep-names.json"
# Keys that do not affect what was computed, and the seed, in which runs of a line differ.
PLACES = set(map(kebab, fields_with(RunConfig, Effect.NONE)))
SEED, STRATEGY = "seed", "strategy"
CENTRAL = "central"  # what training without a strategy is called
STEPS, EPOCHS = "local-steps", "local-epochs"
# Keys that say when a training is tested and when it ends.
LENGTH = {"num-server-rounds", "evaluate-every", "target", "patience"}
# Keys that mean nothing where clients compute one gradient.
NOT_OF_A_GRADIENT = {kebab(name) for name in LocalWork.model_fields if name not in OF_A_GRADIENT}
# Keys that say what a method is; the values of others are its settings.
METHOD = (STRATEGY, "strategy-args")
# Keys whose values are clear without the key's name.
SELF_EXPLANATORY_KEYS = (STRATEGY, "strategy-args", "task", "partition", "partition-args", "links")


@dataclass(frozen=True)
class Name:
    """What runs are called: their method, and their values of other keys in which lines differ."""

    method: str = ""
    setting: str = ""

    def __str__(self) -> str:
        return ", ".join(filter(None, (self.method, self.setting)))

    def with_text(self, text: str) -> "Name":
        """Return the name with one more setting."""
        return replace(self, setting=", ".join(filter(None, (self.setting, text))))


@dataclass(frozen=True)
class Line:
    """Runs of a name that ended alike.

    Attributes:
        method: The name.
        status: How they ended.
        runs: The runs.
    """

    method: Name
    status: str
    runs: list[FinishedRun]

    @property
    def name(self) -> str:
        """The method, and the status of runs that did not finish."""
        return str(self.method) if self.status == FINISHED else f"{self.method} ({self.status})"


def group_runs(
    runs: Sequence[FinishedRun], labels: Sequence[str] = (), group_by: Sequence[str] = ()
) -> tuple[list[Line], list[Name]]:
    """Return the lines of a comparison, in the order of a sweep's grid, or of their first runs.

    The second is all names in this order, with those of the sweep that are not compared: colours go
    by them, so that they are the same in every figure of a sweep.

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
    methods = [Name(label) for label in labels]
    if not labels:
        methods = _names([run.config for run in runs], group_by)
        methods = methods if group_by else _of_sweeps(methods, runs)
    known = dict.fromkeys(name for run in runs for name in _read_names(run.folder).values())
    names = list(dict.fromkeys([*known, *methods] if known.keys() & methods else methods))
    lines: dict[tuple[Name, str], Line] = {}
    for method, run in zip(methods, runs, strict=True):
        new = Line(method, run.status, [])
        lines.setdefault((method, run.status), new).runs.append(run)
    return sorted(lines.values(), key=lambda line: names.index(line.method)), names


def name_of(settings: Mapping[str, Any], keys: Sequence[str], name: str = "") -> Name:
    """Return a run's name by its values of these keys, or its strategy if none of them counts.

    Args:
        settings: All its settings.
        keys: The keys in which runs differ.
        name: What its variant in a sweep is called.
    """
    texts = [(key, setting_text(key, settings[key])) for key in keys if in_force(settings, key)]
    method = ", ".join(filter(None, [name, *(text for key, text in texts if key in METHOD)]))
    setting = ", ".join(text for key, text in texts if key not in METHOD)
    strategy = str(settings.get(STRATEGY, CENTRAL)).rpartition(":")[2]  # without a path's module
    return Name(method, setting) if method else Name(setting or strategy)


def in_force(settings: Mapping[str, Any], key: str) -> bool:
    """Return whether a key has a value in these settings, and one that counts: E or steps."""
    if settings.get(STRATEGY) == "fedsgd" and key in NOT_OF_A_GRADIENT:
        return False
    other = {STEPS: not settings.get(STEPS), EPOCHS: bool(settings.get(STEPS))}
    return settings.get(key, "") != "" and not other.get(key)


def setting_text(key: str, value: object) -> str:
    """Return a setting as a part of a run's name."""
    return str(value) if key in SELF_EXPLANATORY_KEYS else f"{key} {value}"


def write_names(folder: Path, names: Mapping[str, Name]) -> None:
    """Write the name of every run, by the run's folder in the sweep's."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = {slug: [name.method, name.setting] for slug, name in names.items()}
    text = json.dumps(parts, indent=2, ensure_ascii=False)
    (folder / NAMES_FILE).write_text(text + "\n", encoding="utf-8")


def _read_names(run: Path) -> dict[str, Name]:
    """Return the names of the sweep that made a run; none if no sweep did.

    Earlier versions wrote a name as one text.
    """
    path = run.resolve().parent.parent / NAMES_FILE
    try:
        names = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        return {
            slug: Name(name) if isinstance(name, str) else Name(*name)
            for slug, name in names.items()
        }
    except (OSError, ValueError, AttributeError, TypeError) as error:
        fix = f"is damaged ({error}); the sweep's command rewrites it"
        raise ConfigError("RUN", str(path), fix) from error


def _of_sweeps(names: Sequence[Name], runs: Sequence[FinishedRun]) -> list[Name]:
    """Return the names that the sweeps gave, each with what tells apart its runs, if anything does.

    That is settings, such as those of two sweeps of the same methods; what "auto" meant; and the
    folders of runs with the same seed.
    """
    names = [
        _read_names(run.folder).get(run.folder.resolve().parent.name, name)
        for name, run in zip(names, runs, strict=True)
    ]
    settings: dict[int, str] = {}
    for name in set(names):
        places = [place for place, other in enumerate(names) if other == name]
        differing = _names([runs[place].config for place in places], ())
        settings |= zip(places, map(str, differing), strict=True)
    names = _with_texts(names, [settings[place] for place in range(len(names))])
    names = _with_texts(names, [_default_rate(run) for run in runs])
    data = (run.summary.get("data-fingerprint", "")[:8] for run in runs)
    names = _with_texts(names, [f"data {digits}" if digits else "" for digits in data])
    seeded = [(name, run.config.get(SEED)) for name, run in zip(names, runs, strict=True)]
    return [
        Name(f"{name} ({run.folder.name})") if seeded.count(with_seed) > 1 else name
        for name, run, with_seed in zip(names, runs, seeded, strict=True)
    ]


def _with_texts(names: Sequence[Name], texts: Sequence[str]) -> list[Name]:
    """Return the names, with their texts where a name's texts differ; empty texts do not count."""
    found = list(zip(names, texts, strict=True))
    different = {name: {text for other, text in found if other == name and text} for name in names}
    return [
        name.with_text(text) if text and len(different[name]) > 1 else name for name, text in found
    ]


def _default_rate(run: FinishedRun) -> str:
    auto = run.config.get("learning-rate") == "auto" and "learning-rate" in run.summary
    return setting_text("learning-rate", run.summary["learning-rate"]) if auto else ""


def _names(configs: Sequence[Mapping[str, Any]], group_by: Sequence[str]) -> list[Name]:
    """Return each run's values of these keys, or of those in which the runs differ."""
    configs = [_complete(config) for config in configs]
    known = {key for config in configs for key in config}
    for key in group_by:
        if key not in known:
            raise ConfigError("group-by", key, unknown_key(key, known))
    federated = [config for config in configs if STRATEGY in config]
    central = [config for config in configs if STRATEGY not in config]
    keys = _differing(federated) | _differing(central)
    if federated and central:  # whose rounds are steps
        keys |= _differing(configs) - LENGTH
        keys.discard(STRATEGY)
        group_by = group_by or [STRATEGY, *sorted(keys)]
    return [name_of({STRATEGY: CENTRAL, **config}, group_by or sorted(keys)) for config in configs]


def _complete(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with today's defaults for keys that the run's version did not have."""
    kind = RunConfig if STRATEGY in config else CentralConfig
    return {**kind().model_dump(by_alias=True), **config}


def _differing(configs: Sequence[Mapping[str, Any]]) -> set[str]:
    """Return the keys, of those that all have, in which some differ."""
    shared = set(configs[0]).intersection(*configs[1:]) if configs else set()
    found = {key for key in shared if len({str(config[key]) for config in configs}) > 1}
    return found - {SEED, *PLACES}
