"""Tasks: one module per learning problem, found by name.

`load("mnist-2nn")` takes a short name of ours, `load("package.module:TASK")` any importable `Task`.
"""

from importlib import import_module

from tasks.base import Task

BUILT_IN = {
    "mnist-2nn": "tasks.mnist:MNIST_2NN",
    "mnist-cnn": "tasks.mnist:MNIST_CNN",
    "mnist-logistic": "tasks.mnist:MNIST_LOGISTIC",
}


def known() -> list[str]:
    """Return the short names that `load` takes."""
    return sorted(BUILT_IN)


def load(name: str) -> Task:
    """Return the task that ``name`` stands for.

    Args:
        name: A short name (see `known`) or "package.module:TASK".

    Raises:
        ValueError: Nothing of that name, it cannot be imported, or it is no `Task`.
    """
    path = BUILT_IN.get(name, name)
    module, colon, attribute = path.partition(":")
    if not colon:
        raise ValueError(f"known tasks: {', '.join(known())}; or package.module:TASK")
    try:
        task = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"cannot import {path!r}: {error}") from error
    if not isinstance(task, Task):
        raise ValueError(f"{path!r} is not a tasks.base.Task")
    return task
