"""Partitions by name: which examples belong to which client.

A partition is fixed by (partitioner, its arguments, K, seed). A partitioner of one's own is a
function of labels, number of clients and seed.
"""

import hashlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from pydantic import ConfigDict, ValidationError

from fedavg_app.config import RunConfig, kebab
from fedavg_app.errors import ConfigError, error_place
from fedavg_app.partitioning.partitioner import Labels, Partitioner, Rows
from fedavg_app.partitioning.schemes import Classes, Dirichlet, Iid, Natural, Shards
from fedavg_app.partitioning.validation import set_aside
from fedavg_app.plugins import load_component
from tasks.data.dataset import DIGEST_DIGITS, Dataset

PARTITIONERS: dict[str, type[Partitioner]] = {
    "iid": Iid,
    "shards": Shards,
    "classes": Classes,
    "dirichlet": Dirichlet,
    "natural": Natural,
}


def partition(data: Dataset, split: str, config: RunConfig) -> Rows:
    """Return the rows of every client in a split of the data set.

    The same seed splits both alike: a client's test examples have the owner of its training
    examples, or its classes, as nearly as the splits have the same share of each class.

    Args:
        data: The data set.
        split: "train", "test", or "validation": a client's training examples that are set aside,
            without which "train" is.
        config: Names the partitioner, its arguments, K, the share set aside and the seed.

    Raises:
        ConfigError: As for `make_partitioner`, the examples cannot be split like that, the two
            splits have different owners, or nothing would be set aside.
    """
    partitioner = make_partitioner(config.partition, config.partition_args.values)
    train, test = partitioner.labels(data)
    labels, of = (test, "test") if split == "test" else (train, "train")
    count = config.num_clients
    if count > len(labels):
        fix = f"more clients than the {len(labels)} {of} examples; give fewer"
        raise ConfigError("num-clients", count, fix)
    rows = partitioner.split(labels, count, partitioner.resolve_seed(train, count, config.seed))
    if not rows.sizes.all():
        fix = f"some of the {count} clients would have none of the {len(labels)} {of} examples"
        fix += "; give fewer clients, or arguments that make their parts less unequal"
        raise ConfigError("partition-args", config.partition_args, fix)
    if split == "test" or not config.validation:
        return rows
    kept, aside = set_aside(rows, config.validation, config.seed)
    if not len(aside.examples):
        fix = f"that is no example of any client, which have {rows.sizes.max()} at most; give more"
        raise ConfigError("validation", config.validation, fix)
    return aside if split == "validation" else kept


def make_partitioner(name: str, arguments: Mapping[str, Any]) -> Partitioner:
    """Return the partitioner of that name with these arguments.

    Raises:
        ConfigError: An unknown partitioner, an unknown argument, or one out of its range.
    """
    kind = PARTITIONERS.get(name) or load_component("partition", name, _load)
    try:
        return kind.model_validate(dict(arguments))
    except ValidationError as error:
        first = error.errors()[0]
        fix = first["msg"].removeprefix("Input ")
        if first["type"] == "extra_forbidden":
            fix = f"{name} takes {', '.join(map(kebab, kind.model_fields))}"
        value = f"{kebab(str(first['loc'][0]))} = {first['input']}"
        raise ConfigError("partition-args", value, fix) from None


def _load(name: str) -> type[Partitioner]:
    if ":" not in name:
        raise ValueError(f"known partitions: {', '.join(PARTITIONERS)}; or package.module:function")
    found = pkgutil.resolve_name(name)
    if not callable(found):
        raise ValueError("it is no function (labels, num_clients, seed)")

    class ByThisFunction(ByFunction):
        function = staticmethod(found)

    return ByThisFunction


class ByFunction(Partitioner):
    """Split by a function, which is called as function(labels, num_clients, seed, **arguments)."""

    model_config = ConfigDict(extra="allow")
    needs_labels: ClassVar[bool] = False
    function: ClassVar[Callable[..., Sequence[ArrayLike]]]

    def split(self, labels: Labels, num_clients: int, seed: int) -> Rows:
        """Return what the function does; ConfigError unless that is a part for each client."""
        function, arguments = self.function, self.model_extra or {}
        try:
            inspect.signature(function).bind(labels, num_clients, seed, **arguments)
        except TypeError as error:
            given = ", ".join(f"{key} = {value}" for key, value in arguments.items())
            raise ConfigError("partition-args", given, str(error)) from None
        name = f"{function.__module__}:{function.__qualname__}"
        try:
            parts = function(labels, num_clients, seed, **arguments)
        except Exception as error:  # of a user's code
            raise ConfigError("partition", name, f"it raised {error_place(error)}") from error
        try:
            return checked(parts, len(labels), num_clients)
        except (TypeError, ValueError) as error:
            fix = f"{error}; return one array of indices for each client"
            raise ConfigError("partition", name, fix) from error


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


@dataclass(frozen=True)
class DataDigests:
    """What two processes compare to find that they hold the same examples for each client.

    Attributes:
        data: Of the data set.
        partition: Of all clients' rows for training.
    """

    data: str
    partition: str

    @classmethod
    def of(cls, data: Dataset, rows: Rows | None) -> Self:
        """Return the digests of a data set and its partition, if it has one."""
        found = hashlib.sha256()
        if rows is not None:
            found.update(rows.sizes.tobytes())
            found.update(rows.examples.tobytes())
        return cls(data.digest(), found.hexdigest()[:DIGEST_DIGITS])

    def check(self, others: "DataDigests", config: RunConfig) -> None:
        """Compare with those of a process that runs clients.

        Raises:
            ConfigError: They differ.
        """
        if others.data != self.data:
            fix = "its dataset() gives the server and a client different examples; draw a split "
            raise ConfigError("task", config.task, f"{fix}with a fixed seed, or use load_cached")
        if others.partition != self.partition:
            fix = "it gives the server and a client different splits; draw from its seed"
            raise ConfigError("partition", config.partition, fix)
