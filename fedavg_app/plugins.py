"""Components by name: tasks, strategies and client mods, with errors that name the config key.

Names of the form "package.module:attribute" are resolved by `pkgutil.resolve_name`.
"""

import traceback
from collections.abc import Callable
from typing import TypeVar

import tasks
from fedavg_app.config import RunConfig
from fedavg_app.errors import ConfigError

Component = TypeVar("Component")


def load_component(key: str, name: str, load: Callable[[str], Component]) -> Component:
    """Return ``load(name)``.

    Args:
        key: The config key that has the name.
        name: The component's name.
        load: Finds it, for example `strategies.load`.

    Raises:
        ConfigError: There is no such component, or its module raised an error while it was
            imported; then the line names that error with its file and line.
    """
    try:
        return load(name)
    except Exception as error:  # importing a user's module runs the user's code
        raise ConfigError(key, name, _reason(error, name)) from error


def check_names(config: RunConfig) -> None:
    """Check the names of task and strategy, without importing torch.

    Raises:
        ConfigError: There is no such task or strategy.
    """
    import strategies

    load_component("task", config.task, tasks.check_name)
    load_component("strategy", config.strategy, strategies.load)


def _reason(error: Exception, name: str) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, ModuleNotFoundError) and _contains(error.name, name):
        return f"there is no module {error.name!r}; install it, or put it on PYTHONPATH"
    if not any("importlib._bootstrap" in frame.filename for frame in frames):
        return str(error)  # raised by the look-up itself
    file, line, text = frames[-1].filename, frames[-1].lineno, " ".join(str(error).split())
    if isinstance(error, SyntaxError):  # which no frame of the broken file raised
        file, line, text = str(error.filename), error.lineno, error.msg
    return f"its module raised {type(error).__name__}: {text} ({file}, line {line})"


def _contains(module: str | None, name: str) -> bool:
    """Return whether a module is that of "package.module:attribute", or a package around it."""
    return f"{name.partition(':')[0]}.".startswith(f"{module}.")
