"""Tasks: one module per learning problem, found by name.

A name is one of `BUILT_IN`, or "package.module:TASK" for any importable `tasks.base.Task`.
"""

import pkgutil
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # torch takes two seconds to import
    from tasks.base import Task

BUILT_IN = {
    "cifar10-cnn": "tasks.cifar:CIFAR10_CNN",
    "cifar10-vgg11": "tasks.cifar:CIFAR10_VGG",
    "fashion-cnn": "tasks.mnist:FASHION_CNN",
    "fashion-lstm": "tasks.mnist:FASHION_LSTM",
    "mnist-2nn": "tasks.mnist:MNIST_2NN",
    "mnist-cnn": "tasks.mnist:MNIST_CNN",
    "mnist-logistic": "tasks.mnist:MNIST_LOGISTIC",
    "shakespeare-lstm": "tasks.shakespeare:SHAKESPEARE_LSTM",
    "yelp-stars": "tasks.yelp:YELP_STARS",
}


def names() -> list[str]:
    """Return the names of the built-in tasks."""
    return sorted(BUILT_IN)


def check_name(name: str) -> str:
    """Return the path "package.module:TASK" of a task; nothing is imported.

    Raises:
        ValueError: An unknown name.
        ModuleNotFoundError: There is no such package.
    """
    path = BUILT_IN.get(name, name)
    if ":" not in path:
        raise ValueError(f"known tasks: {', '.join(names())}; or package.module:TASK")
    package = path.partition(":")[0].partition(".")[0]
    if package not in sys.modules and find_spec(package) is None:
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)
    return path


def load(name: str) -> "Task":
    """Return the task of that name.

    Args:
        name: A built-in task's (see `names`) or "package.module:TASK".

    Raises:
        ValueError: An unknown name, or not a `Task`.
        ImportError: There is no such module.
        AttributeError: The module has no such attribute.
    """
    from tasks.base import Task

    path = check_name(name)
    task = pkgutil.resolve_name(path)
    if not isinstance(task, Task):
        raise ValueError(f"{path!r} is not a tasks.base.Task")
    return task
