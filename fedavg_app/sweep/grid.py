"""A grid of runs as a TOML file.

A line ``seed = [1, 2, 3]`` is a key of the run config with several values; each of the
``[[variants]]`` has keys that override those above, and may have a ``name``, which tables and
figures use. All combinations are run.
"""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Any

from fedavg_app.config import RunConfig, TrainingConfig, parse, with_clients
from fedavg_app.errors import ConfigError
from fedavg_app.results.comparison_names import SEED, name_of
from fedavg_app.server.preparation import resolve
from fedavg_app.sweep.planned_run import PlannedRun, identity

VARIANTS, NAME = "variants", "name"


def read_grid(path: Path) -> list[PlannedRun]:
    """Return the runs of a grid's file, as `planned_runs` does.

    Raises:
        ConfigError: The file cannot be read, too.
    """
    return planned_runs(read_keys(path))


def read_keys(path: Path, key: str = "grid") -> dict[str, Any]:
    """Return the content of a grid's file; ``key`` names the file in errors.

    Raises:
        ConfigError: The file cannot be read.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(key, str(path), f"give a TOML file ({error})") from error


def planned_runs(keys: Mapping[str, Any]) -> list[PlannedRun]:
    """Return the runs of a grid, each once.

    Raises:
        ConfigError: A run has an unknown key or a value that cannot be used: a strategy's argument,
            too.
    """
    variants = keys.get(VARIANTS) or [{}]
    keys = {key: value for key, value in keys.items() if key != VARIANTS}
    if not isinstance(variants, list) or not all(isinstance(variant, dict) for variant in variants):
        raise ConfigError(VARIANTS, str(variants), f"write each as a table [[{VARIANTS}]]")
    chosen = [
        (_method_name(variant), combination)
        for variant in variants
        for combination in combinations(
            {**keys, **{key: variant[key] for key in variant if key != NAME}}
        )
    ]
    all_values = [values for _, values in chosen]
    seeded = SEED in _varying(all_values)
    runs: dict[str, PlannedRun] = {}
    for name, values in chosen:
        alike = [found for other, found in chosen if other == name] if name else all_values
        varying = [key for key in _varying(alike) if key != SEED]
        planned = plan_run(values, varying, name=name, seeded=seeded)
        assert isinstance(planned.config, RunConfig)
        resolve(planned.config)
        first = runs.setdefault(planned.slug, planned)
        if name and first.method != planned.method:
            fix = f"its runs are those of {str(first.method)!r}"
            raise ConfigError(NAME, str(planned.method), fix)
    return list(runs.values())


def _method_name(variant: Mapping[str, Any]) -> str:
    name = variant.get(NAME, "")
    if not isinstance(name, str):
        raise ConfigError(NAME, name, 'give a text, such as "STC, p = 1/25"')
    return name


def _varying(chosen: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the keys in which some differ, in order."""
    return [
        key for key in dict.fromkeys(key for run in chosen for key in run)
        if any(run.get(key) != chosen[0].get(key) for run in chosen)
    ]  # fmt: skip


def combinations(keys: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield all combinations of the values of keys that have several, the last key's first.

    Raises:
        ConfigError: A key has none.
    """
    for key, value in keys.items():
        if value == []:
            raise ConfigError(key, value, "give at least one value")
    values = [value if isinstance(value, list) else [value] for value in keys.values()]
    for combination in product(*values):
        yield dict(zip(keys, combination, strict=True))


def plan_run(
    values: Mapping[str, Any],
    keys: Sequence[str],
    kind: type[TrainingConfig] = RunConfig,
    *,
    name: str = "",
    seeded: bool,
) -> PlannedRun:
    """Return the run of these values, which is called by those of some keys.

    Args:
        values: By key.
        keys: Those in which methods of this name differ.
        kind: Of training.
        name: That of its variant; may be empty.
        seeded: Whether there are several seeds.

    Raises:
        ConfigError: It has an unknown key, or a value that cannot be used.
    """
    config = with_clients(parse(kind, values))
    method = name_of(config.model_dump(by_alias=True), keys, name)
    digest = sha256(repr(sorted(identity(config))).encode()).hexdigest()[:12]
    slug = f"{config.method}-{digest}"
    seed = f"{SEED} {config.seed}, " if seeded else ""
    return PlannedRun(f"{seed}{method}", slug, config, method)
