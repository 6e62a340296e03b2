"""The command `list`: the tasks, strategies, partitions and so on that there are."""

import inspect
from collections.abc import Iterator, Mapping
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
        for row in _tasks() if one is Kind.TASKS else _described(_classes(one)):
            table.add_row(*row)
        if one is Kind.SERVER_OPTIMIZERS:
            table.add_row("none", "The model changes by the mean update.", "")
        console.print(table)


def _tasks() -> Iterator[tuple[str, str, str]]:
    import tasks

    for name in tasks.names():
        task = tasks.load(name)
        target = f", target {task.target_accuracy:g}" if task.target_accuracy else ""
        parameters = sum(parameter.numel() for parameter in task.model().parameters())
        what = f"{parameters:,} parameters, learning rate {task.learning_rate:g}{target}"
        yield name, what, f"partitions: {', '.join(task.partitions)}"


def _classes(kind: Kind) -> Mapping[str, type]:
    import strategies
    from fedavg_app.partitioning.partitions import PARTITIONERS
    from strategies import compression, server_optimizer

    if kind is Kind.PARTITIONS:
        return PARTITIONERS
    registries: dict[Kind, Registry[Any]] = {
        Kind.STRATEGIES: strategies.STRATEGIES,
        Kind.COMPRESSORS: compression.COMPRESSORS,
        Kind.FEEDBACK: compression.FEEDBACK,
        Kind.SERVER_OPTIMIZERS: server_optimizer.SERVER_OPTIMIZERS,
    }
    return {name: registries[kind].load(name) for name in registries[kind].names()}


def _described(classes: Mapping[str, type]) -> Iterator[tuple[str, str, str]]:
    """Yield each class's name, the first line of its docstring and its arguments as keys."""
    for name, cls in classes.items():
        arguments = [
            one.name.replace("_", "-")
            + ("" if one.default is one.empty else f" = {_toml(one.default)}")
            for one in inspect.signature(cls).parameters.values()
            if one.kind is not one.VAR_KEYWORD
        ]
        yield name, (inspect.getdoc(cls) or "").partition("\n")[0], ", ".join(arguments)


def _toml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)
