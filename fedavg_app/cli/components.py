"""The command `list`: the tasks, strategies, partitions and so on that there are."""

import inspect
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from strategies.registry import Registry

# A component's name, what it is, and its arguments.
Row = tuple[str, str, str]


def list_components() -> None:
    """List tasks, strategies and their parts, and partitions, with their arguments."""
    from fedavg_app.partitioning import PARTITIONERS
    from strategies import OF_ANY_APP, STRATEGIES
    from strategies.compression import COMPRESSORS
    from strategies.server_optimizer import SERVER_OPTIMIZERS

    none = ("none", "The model changes by the mean update.", "")
    lists = {
        "tasks": _tasks(),
        "strategies": _registered(STRATEGIES, left_out=OF_ANY_APP),
        "compressors": _registered(COMPRESSORS),
        "server-optimizers": [*_registered(SERVER_OPTIMIZERS), none],
        "partitions": [_described(name, kind) for name, kind in PARTITIONERS.items()],
    }
    console = Console(highlight=False, markup=False)
    for title, rows in lists.items():
        table = Table("name", "what it is", "arguments", title=title, title_justify="left")
        for row in rows:
            table.add_row(*row)
        console.print(table)


def _tasks() -> Iterator[Row]:
    import tasks

    for name in tasks.names():
        task = tasks.load(name)
        target = f", target {task.target:g}" if task.target is not None else ""
        parameters = sum(parameter.numel() for parameter in task.model().parameters())
        what = f"{parameters:,} parameters, learning rate {task.learning_rate:g}{target}"
        yield name, what, f"partitions: {', '.join(task.partitions)}"


def _registered(registry: "Registry[Any]", left_out: Collection[str] = ()) -> Iterator[Row]:
    return (_described(name, registry.load(name), left_out) for name in registry.names())


def _described(name: str, cls: type, left_out: Collection[str] = ()) -> Row:
    """Return a class's name, the first line of its docstring and its arguments as keys."""
    arguments = [
        parameter.name.replace("_", "-") + _default(parameter.default)
        for parameter in inspect.signature(cls).parameters.values()
        if parameter.kind is not parameter.VAR_KEYWORD and parameter.name not in left_out
    ]
    return name, (inspect.getdoc(cls) or "").partition("\n")[0], ", ".join(arguments)


def _default(value: Any) -> str:
    """Return " = value" in TOML; nothing for an argument without one, or whose default is empty."""
    if value is inspect.Parameter.empty or repr(value) == "<factory>":
        return ""
    return f" = {str(value).lower() if isinstance(value, bool) else repr(value)}"
