"""Components by name: tasks, strategies, client mods and callbacks, with errors that name the key.

Names of the form "package.module:attribute" are resolved by `pkgutil.resolve_name`.
"""

import difflib
import traceback
from collections.abc import Callable
from typing import TypeVar

from fedavg_app import OWN, own_folder
from fedavg_app.callbacks.base import Callback
from fedavg_app.errors import ConfigError, error_place
from strategies.registry import Registry

Component = TypeVar("Component")

CALLBACKS = Registry[Callback](
    Callback,
    "callback",
    {
        "tensorboard": "fedavg_app.callbacks.trackers:TensorBoard",
        "wandb": "fedavg_app.callbacks.trackers:WandB",
    },
)


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
    if name.startswith("__main__:"):
        fix = "clients run in separate processes, which cannot import the running script"
        raise ConfigError(key, name, f"{fix}; put it into a module")
    try:
        return load(name)
    except Exception as error:  # importing a user's module runs the user's code
        raise ConfigError(key, name, _reason(error, name)) from error


def _reason(error: Exception, name: str) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, ModuleNotFoundError) and _contains(error.name, name):
        package = name.partition(".")[0]
        if package in OWN:
            fix = f"{package!r} is {own_folder()}/{package}; give a folder of yours another name"
            return f"there is no module {error.name!r}: {fix}"
        return f"there is no module {error.name!r}; install it, or put it on PYTHONPATH"
    if not any("importlib._bootstrap" in frame.filename for frame in frames):
        # Raised by the look-up itself.
        return f"{error}{_suggestion(error)}"
    return f"its module raised {error_place(error)}"


def _suggestion(error: Exception) -> str:
    if not (isinstance(error, AttributeError) and error.name):
        return ""
    close = difflib.get_close_matches(error.name, dir(error.obj), 2)
    return f"; did you mean {' or '.join(close)}?" if close else ""


def _contains(module: str | None, name: str) -> bool:
    """Return whether a module is that of "package.module:attribute", or a package around it."""
    return f"{name.partition(':')[0]}.".startswith(f"{module}.")
