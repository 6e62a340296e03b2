"""The check that a task's data and initial model are the same each time."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from torch import nn

from tasks.base import Task
from tasks.checking.finding import Finding, TaskError
from tasks.data.dataset import Dataset
from tasks.model_arrays import read_arrays, state_of


def check_loads(task: Task, data: Dataset, seed: int) -> Iterator[Finding]:
    """Yield that data and model are the same each time; TaskError where they are not."""
    if task.dataset(data.options).digest() != data.digest():
        text = (
            "gives different examples each time: draw a split with a fixed seed, or use load_cached"
        )
        raise TaskError("dataset", text)
    first, again = (all_arrays(task.initial_model(seed)) for _ in range(2))
    for name, array in first.items():
        if not np.array_equal(array, again[name], equal_nan=True):
            text = f"gives a different {name!r} each time: draw from torch's global random state"
            raise TaskError("model", text)
    yield Finding("ok", "dataset", "every call gives the same examples, and the same model")


def all_arrays(model: nn.Module) -> dict[str, NDArray[np.generic]]:
    """Return all arrays of a model, by name."""
    return read_arrays(model, tuple(state_of(model)))
