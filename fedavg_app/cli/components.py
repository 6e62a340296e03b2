"""The command `list`: the tasks, strategies, partitions and so on that there are."""

import inspect
from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from strategies.registry import Registry


class Kind(StrEnum):
    """What can be listed."""

    TASKS = "tasks"
    STRATEGIES = "strategies"
    COMPRESSORS = "compressors"
    FEEDBACK = "feedback"
    SERVER_OPTIMIZERS = "server-optimizers"
    PARTITIONS = "partitions"


def list_components(
    kind: Annotated[
        Kind | None, typer.Argument(help="only these", show_default=False)
    ] = None,
) -> None:  # fmt: skip
    """List tasks, strategies and their parts, and partitions, with their arguments."""
    console = Console(highlight=False, markup=False)
    for one in Kind if kind is None else [kind]:
        table = Table("name", "what it is", "arguments", title=one.value, title_justify="left")
        for row in _ROWS[one]():
            table.add_row(*row)
        console.print(table)


def _tasks() -> Iterator[tuple[str, str, str]]:
    import tasks

    for name in tasks.names():
        task = tasks.load(name)
        target = f", target {task.target_accuracy:g}" if task.target_accuracy else ""
        parameters = sum(parameter.numel() for parameter in task.model().parameters())
        what = f"{parameters:,} parameters, learning rate {task.learning_rate:g}{target}"
        yield name, what, f"partitions: {', '.join(task.partitions)}"


def _strategies() -> Iterator[tuple[str, str, str]]:
    import strategies

    return _classes(strategies.STRATEGIES)


def _compressors() -> Iterator[tuple[str, str, str]]:
    from strategies import compression

    return _classes(compression.COMPRESSORS)


def _feedback() -> Iterator[tuple[str, str, str]]:
    from strategies import compression

    return _classes(compression.FEEDBACK)


def _server_optimizers() -> Iterator[tuple[str, str, str]]:
    from strategies import server_optimizer

    yield from _classes(server_optimizer.SERVER_OPTIMIZERS)
    yield server_optimizer.NONE, "The model changes by the mean update.", ""


def _classes(registry: "Registry[Any]") -> Iterator[tuple[str, str, str]]:
    for name in registry.names():
        cls = registry.load(name)
        yield name, _first_line(cls), _arguments(cls)


def _partitions() -> Iterator[tuple[str, str, str]]:
    from fedavg_app.config import kebab
    from fedavg_app.partitioning.cache import PARTITIONERS

    for name, cls in PARTITIONERS.items():
        fields = cls.model_fields.items()
        arguments = ", ".join(f"{kebab(key)} = {_toml(field.default)}" for key, field in fields)
        yield name, _first_line(cls), arguments


def _first_line(cls: type) -> str:
    return (inspect.getdoc(cls) or "").partition("\n")[0]


def _arguments(cls: Any) -> str:
    parameters = inspect.signature(cls).parameters.values()
    return ", ".join(
        one.name.replace("_", "-")
        + ("" if one.default is one.empty else f" = {_toml(one.default)}")
        for one in parameters
        if one.kind is not one.VAR_KEYWORD
    )


def _toml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)


_ROWS = {
    Kind.TASKS: _tasks,
    Kind.STRATEGIES: _strategies,
    Kind.COMPRESSORS: _compressors,
    Kind.FEEDBACK: _feedback,
    Kind.SERVER_OPTIMIZERS: _server_optimizers,
    Kind.PARTITIONS: _partitions,
}
