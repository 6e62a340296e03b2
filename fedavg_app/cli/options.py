"""Options of commands, from the fields of a config."""

import inspect
import json
import tomllib
from collections.abc import Callable, Collection
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import typer

import strategies
import tasks
from fedavg_app.config import (
    CentralConfig,
    RunConfig,
    TrainingConfig,
    kebab,
    migrate_saved_keys,
    parse,
)
from fedavg_app.errors import ConfigError
from fedavg_app.partitioning import PARTITIONERS
from tasks.training.training_settings import LocalWork

# The keys by topic, as the help and docs/configuration.md show them.
GROUPS = {
    "Task and data": [
        "task", "data-source", "data-dir", "partition", "partition-args", "validation", "seed",
    ],
    "Strategy": ["strategy", "strategy-args", "client-mods", "local-arrays"],
    "Clients and rounds": [
        "num-clients", "fraction-train", "selection", "fraction-evaluate", "num-server-rounds",
        "budget", "evaluate-every", "objective", "target", "patience",
    ],
    "Local training": [
        *(kebab(name) for name in LocalWork.model_fields if name != "seed"),
        "learning-rate", "learning-rate-decay", "device", "num-threads",
    ],
    "Replies and nodes": [
        "round-timeout", "over-selection", "min-replies", "max-examples", "max-update-norm",
        "min-nodes", "node-timeout",
    ],
    "Virtual clock": ["links", "seconds-per-example"],
    "Output": ["run-dir", "checkpoint-every", "checkpoint-seconds", "resume"],
}  # fmt: skip
NAMES: dict[str, Callable[[], list[str]]] = {
    "task": tasks.names,
    "strategy": strategies.names,
    "partition": lambda: list(PARTITIONERS),
}
CONFIG_OPTION = "config_file"
# What stands beside a mean: the sample standard deviation, the least and the largest value, or
# nothing since every run has its own row.
Spread = Literal["std", "range", "runs"]


class Panel(StrEnum):
    """What a figure shows the objective by; the clock of "link" may be that of the runs' links."""

    ROUND = "round"
    UP = "up"
    DOWN = "down"
    BOTH = "both"
    LINK = "link"
    WALL = "wall"


def with_config(
    kind: type[TrainingConfig], without: Collection[str] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that gives a command an option for each key of a config.

    The command is called with the checked config as its first argument. What the options do not say
    is taken from the file that `--config` names, TOML or the ``config.json`` of a run's folder, and
    else from the defaults.

    Args:
        kind: `RunConfig` or `CentralConfig`.
        without: The fields that no option gives.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(**given: Any) -> None:
            keys = {name: given.pop(name) for name in kind.model_fields if name not in without}
            file: Path | None = given.pop(CONFIG_OPTION)
            options = {kebab(name): value for name, value in keys.items() if value is not None}
            command(parse(kind, (read_config(file, kind) if file else {}) | options), **given)

        others = list(inspect.signature(command).parameters.values())[1:]
        parameters = [
            *(parameter for parameter in _options(kind) if parameter.name not in without),
            *others,
        ]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return decorate


def read_config(path: Path, kind: type[TrainingConfig]) -> dict[str, Any]:
    """Return the keys in a config file that concern a kind of training.

    Raises:
        ConfigError: It cannot be read, or holds no table.
    """
    try:
        text = path.read_text(encoding="utf-8")
        saved = path.suffix == ".json"
        values = migrate_saved_keys(json.loads(text)) if saved else tomllib.loads(text)
    except (OSError, ValueError, TypeError) as error:
        fix = f"give a TOML file of keys, or a run's config.json ({error})"
        raise ConfigError("config", str(path), fix) from error
    known = {kebab(name) for config in (RunConfig, CentralConfig) for name in config.model_fields}
    # A key that no training has is left in, for the config to refuse.
    others = known - set(map(kebab, kind.model_fields))
    return {name: value for name, value in values.items() if name not in others}


def _options(kind: type[TrainingConfig]) -> list[inspect.Parameter]:
    """Return the options of a config's fields, by group, and the option that names a file."""
    names = {kebab(name): name for name in kind.model_fields}
    keys = [(group, key) for group, keys in GROUPS.items() for key in keys if key in names]
    help_ = "read keys that no option gives from this file: TOML, or a run's config.json"
    return [
        *(_option(kind, names[key], group) for group, key in keys),
        _parameter(CONFIG_OPTION, Path | None, "--config", help_, "FILE", "Output"),
    ]


def _option(kind: type[TrainingConfig], name: str, group: str) -> inspect.Parameter:
    # Its value stays text: the config checks it, in the same words for every way to give it.
    field, key = kind.model_fields[name], kebab(name)
    names = NAMES.get(key)
    known = f" ({', '.join(names())})" if names else ""
    default = "" if field.default == "" else f"; default {field.default}"
    text, metavar = f"{field.description}{known}{default}", _metavar(field.annotation)
    return _parameter(name, str | None, f"--{key}", text, metavar, group, names)


def _parameter(
    name: str, kind: Any, flag: str, text: str, metavar: str, group: str, complete: Any = None
) -> inspect.Parameter:
    option = typer.Option(
        flag, help=text, metavar=metavar, show_default=False, rich_help_panel=group,
        autocompletion=(lambda: complete()) if complete else None,
    )  # fmt: skip
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, option]
    )


def _metavar(annotation: Any) -> str:
    """Return "NUMBER|auto" for `float | Literal["auto"]`, and so on."""
    if get_origin(annotation) is Literal:
        return "|".join(get_args(annotation))
    if get_origin(annotation) is Annotated:
        return _metavar(get_args(annotation)[0])
    members = get_args(annotation)
    if members:
        return "|".join(map(_metavar, members))
    return {int: "INTEGER", float: "NUMBER"}.get(annotation, "TEXT")
