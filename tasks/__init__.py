"""Tasks: one module per learning problem, found by name.

`load("mnist-2nn")` takes a short name of ours, `load("package.module:TASK")` any importable `Task`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # torch takes two seconds to import
    from tasks.base import Task

BUILT_IN = {
    "cifar10-cnn": "tasks.cifar:CIFAR10_CNN",
    "cifar10-vgg11": "tasks.cifar:CIFAR10_VGG",
    "fashion-cnn": "tasks.fashion:FASHION_CNN",
    "fashion-lstm": "tasks.fashion:FASHION_LSTM",
    "mnist-2nn": "tasks.mnist:MNIST_2NN",
    "mnist-cnn": "tasks.mnist:MNIST_CNN",
    "mnist-logistic": "tasks.mnist:MNIST_LOGISTIC",
    "shakespeare-lstm": "tasks.shakespeare:SHAKESPEARE_LSTM",
    "yelp-stars": "tasks.yelp:YELP_STARS",
}


def known() -> list[str]:
    """Return the short names that `load` takes."""
    return sorted(BUILT_IN)


def resolve(name: str) -> str:
    """Return the path "package.module:TASK" that ``name`` stands for; nothing is imported.

    Raises:
        ValueError: An unknown short name.
    """
    path = BUILT_IN.get(name, name)
    if ":" not in path:
        raise ValueError(f"known tasks: {', '.join(known())}; or package.module:TASK")
    return path


def load(name: str) -> "Task":
    """Return the task that ``name`` stands for.

    Args:
        name: A short name (see `known`) or "package.module:TASK".

    Raises:
        ValueError: Nothing of that name, it cannot be imported, or it is no `Task`.
    """
    from tasks.base import Task

    path = resolve(name)
    module, _, attribute = path.partition(":")
    try:
        task = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"cannot import {path!r}: {error}") from error
    if not isinstance(task, Task):
        raise ValueError(f"{path!r} is not a tasks.base.Task")
    return task
