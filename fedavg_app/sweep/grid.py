"""A grid of runs as a TOML file.

A line ``seed = [1, 2, 3]`` is a key of the run config with several values; each of the
``[[variants]]`` has keys of its own, which override those above. All combinations are run.
"""

import tomllib
from collections.abc import Iterator, Mapping
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Any

from fedavg_app.config import parse_config, with_clients
from fedavg_app.errors import ConfigError
from fedavg_app.results.comparison import setting_text
from fedavg_app.server.preparation import resolve
from fedavg_app.sweep.identity import identity
from fedavg_app.sweep.run_process import PlannedRun

VARIANTS = "variants"


def read_grid(path: Path) -> list[PlannedRun]:
    """Return the runs of a grid, each once.

    Raises:
        ConfigError: The file cannot be read, or a run has an unknown key or a value that cannot be
            used: a strategy's argument, too.
    """
    try:
        keys = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError("grid", str(path), f"give a TOML file ({error})") from error
    variants = keys.pop(VARIANTS, None) or [{}]
    if not isinstance(variants, list) or not all(isinstance(one, dict) for one in variants):
        raise ConfigError(VARIANTS, str(variants), f"write each as a table [[{VARIANTS}]]")
    chosen = [one for variant in variants for one in _combinations({**keys, **variant})]
    varying = [
        key for key in dict.fromkeys(key for one in chosen for key in one)
        if any(one.get(key) != chosen[0].get(key) for one in chosen)
    ]  # fmt: skip
    runs = {planned.slug: planned for planned in (_plan(one, varying) for one in chosen)}
    return list(runs.values())


def _combinations(keys: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for key, value in keys.items():
        if value == []:
            raise ConfigError(key, value, "give one value or more")
    values = [value if isinstance(value, list) else [value] for value in keys.values()]
    for combination in product(*values):
        yield dict(zip(keys, combination, strict=True))


def _plan(values: Mapping[str, Any], varying: list[str]) -> PlannedRun:
    config = with_clients(parse_config(values))
    resolve(config)
    name = ", ".join(setting_text(key, values[key]) for key in varying if key in values)
    digest = sha256(repr(sorted(identity(config))).encode()).hexdigest()[:12]
    return PlannedRun(name or config.method, f"{config.method}-{digest}", config)
