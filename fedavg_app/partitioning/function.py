"""A partition of one's own, as a function of labels, number of clients and seed."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from pydantic import ConfigDict

from fedavg_app.errors import ConfigError
from fedavg_app.partitioning.partitioner import Labels, Partitioner, Rows

# Called as function(labels, num_clients, seed, **arguments).
Split = Callable[..., Sequence[ArrayLike]]


def partitioner_of(found: Any) -> type[Partitioner]:
    """Return what splits by a function; ValueError where it is none."""
    if not callable(found):
        raise ValueError("it is no function (labels, num_clients, seed)")
    function: Split = found

    class ByFunction(Partitioner):
        model_config = ConfigDict(extra="allow")

        def split(self, labels: Labels, num_clients: int, seed: int) -> Rows:
            arguments = self.model_extra or {}
            try:
                inspect.signature(function).bind(labels, num_clients, seed, **arguments)
            except TypeError as error:
                given = ", ".join(f"{key} = {value}" for key, value in arguments.items())
                raise ConfigError("partition-args", given, str(error)) from None
            parts = function(labels, num_clients, seed, **arguments)
            try:
                return checked(parts, len(labels), num_clients)
            except (TypeError, ValueError) as error:
                name = f"{function.__module__}:{function.__qualname__}"
                fix = f"{error}; return one array of indices for each client"
                raise ConfigError("partition", name, fix) from error

    return ByFunction


def checked(parts: Sequence[ArrayLike], num_examples: int, num_clients: int) -> Rows:
    """Return the parts as the rows of clients.

    Raises:
        TypeError, ValueError: They are not one part for each client, made of different, existing
            examples.
    """
    found = [np.asarray(part) for part in parts]
    problem = ""
    if len(found) != num_clients:
        problem = f"{len(found)} parts for {num_clients} clients"
    elif any(part.ndim != 1 or not part.size or part.dtype.kind not in "iu" for part in found):
        problem = "a part is not a sequence of one index or more"
    else:
        every = np.concatenate(found)
        if every.min() < 0 or every.max() >= num_examples:
            problem = f"an index is not from 0 to {num_examples - 1}"
        elif len(np.unique(every)) < len(every):
            problem = "an example belongs to two clients"
    if problem:
        raise ValueError(problem)
    return Rows.of(every.astype(np.int64), [len(part) for part in found])
