"""`Partitioner`: a way to split examples among clients; its fields are its arguments.

What a partition goes by is in `find_labels`: owners, targets, a column, or a function of the
examples. Partitioners that `flwr_datasets.partitioner` also has return the same indices, `shards`
where all have one size, without the milliseconds that it takes for each client.
"""

import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import BaseModel, ConfigDict

from fedavg_app.errors import ConfigError
from fedavg_app.plugins import load_component
from tasks.data.dataset import Dataset, Split

Labels = NDArray[np.int64]
Indices = NDArray[np.int64]

BINS = "bins:"


@dataclass(frozen=True)
class Rows:
    """The examples of every client, in two arrays: a million small ones would take much more.

    Attributes:
        examples: Those of client 0, then those of client 1, and so on: (n,) int64.
        offsets: Where each client's begin, and n: (K + 1,) int64.
    """

    examples: Indices
    offsets: Indices

    @classmethod
    def of(cls, examples: Indices, sizes: ArrayLike) -> Self:
        """Return the rows of clients that have so many of the examples, in their order."""
        return cls(examples, np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]))

    @property
    def sizes(self) -> Indices:
        """The number of every client's examples, (K,)."""
        return np.diff(self.offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, client: int) -> Indices:
        """Return a client's examples, a view."""
        return self.examples[self.offsets[client] : self.offsets[client + 1]]

    def __iter__(self) -> Iterator[Indices]:
        return map(self.__getitem__, range(len(self)))


class Partitioner(BaseModel, ABC):
    """A way to split examples among clients, fixed by the seed.

    Attributes:
        by: What it goes by (`find_labels`).
        needs_labels: Whether it needs one integer for each example.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
    needs_labels: ClassVar[bool] = True

    by: str = ""

    def labels(self, data: Dataset) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the labels of the training and of the test examples.

        Raises:
            ConfigError: As for `find_labels`, or they are not what the partitioner needs.
        """
        train, test = find_labels(data, self.by)
        if not self.needs_labels:
            return train, test
        name = type(self).__name__.lower()
        return _integers(train, name, self.by), _integers(test, name, self.by)

    def resolve_seed(self, labels: Labels, num_clients: int, seed: int) -> int:
        """Return the seed that `split` is to be called with for all splits of a data set.

        Args:
            labels: Of the training set, which decides where a draw has to be repeated.
            num_clients: K.
            seed: The run's seed.
        """
        del labels, num_clients
        return seed

    @abstractmethod
    def split(self, labels: Labels, num_clients: int, seed: int) -> Rows:
        """Return the disjoint indices of the clients' examples, of which each must have some.

        Args:
            labels: The target, or the owner, of every example: (n,) int64.
            num_clients: K, at most n.
            seed: What `resolve_seed` returned.

        Raises:
            ConfigError: The examples cannot be split like that.
        """


def find_labels(data: Dataset, by: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the labels of the training and of the test examples, of whatever kind they are.

    Args:
        data: The data set.
        by: "bins:4" for four bins of the targets, with as many training examples in each; the name
            of an array among the inputs or the targets; "package.module:function" for a function
            of a `Split`; "" for the owners, or the targets where the data have none.

    Raises:
        ConfigError: There is no such array, or the targets are no numbers to be put into bins.
    """
    if by.startswith(BINS):
        return _bins(data, by)
    find: Callable[[Split], NDArray[Any]] = partial(_column, name=by) if by else _owners_or_targets
    if ":" in by:
        function = load_component("partition-args", by, pkgutil.resolve_name)
        find = partial(_called, function=function, by=by)
    return find(data.train), find(data.test)


def _refused(by: str, fix: str) -> ConfigError:
    return ConfigError("partition-args", f"by = {by!r}", fix)


def _integers(labels: NDArray[Any], partition: str, by: str) -> Labels:
    """Return labels for a partition that goes by them: one integer for each example."""
    if labels.ndim == 1 and labels.dtype.kind in "iu":
        return labels.astype(np.int64)
    if by:
        raise _refused(
            by, f"gives {labels.dtype} {labels.shape}: give one integer for each example"
        )
    kind = "no single array of targets (a MapStyleSplit has labels=)"
    if labels.ndim > 1 and labels.shape[1]:
        kind = f"{labels[0].size} targets"
    elif labels.ndim == 1:
        kind = f"a target of {labels.dtype}, which is no class"
    fix = "give 'iid', owners for the data, or by in partition-args, as in: by = 'bins:10'"
    raise ConfigError("partition", partition, f"an example has {kind}; {fix}")


def _owners_or_targets(split: Split) -> NDArray[Any]:
    found = split.owners_or_targets
    # Examples without labels in one array can still be split at random.
    return found if isinstance(found, np.ndarray) else np.empty((len(split), 0))


def _called(split: Split, function: Callable[[Split], ArrayLike], by: str) -> NDArray[Any]:
    try:
        labels = np.asarray(function(split))
    except Exception as error:
        raise _refused(by, f"it raised {type(error).__name__}: {error}") from error
    if labels.shape[:1] != (len(split),):
        fix = f"it gave {labels.shape} for {len(split)} examples: give one integer for each"
        raise _refused(by, fix)
    return labels


def _bins(data: Dataset, by: str) -> tuple[Labels, Labels]:
    number, found = by.removeprefix(BINS), [data.train.targets, data.test.targets]
    if not number.isdecimal() or int(number) < 2:
        raise _refused(by, "give the number of bins, 2 or more, as in bins:10")
    targets = [labels for labels in found if isinstance(labels, np.ndarray) and labels.ndim == 1]
    if len(targets) < len(found):
        raise _refused(by, "an example has no single target; give a function instead")
    edges = np.quantile(targets[0], np.linspace(0, 1, int(number) + 1)[1:-1])
    train, test = (np.searchsorted(edges, values, side="right") for values in targets)
    return train, test


def _column(split: Split, name: str) -> NDArray[Any]:
    several = [values for values in (split.inputs, split.targets) if isinstance(values, Mapping)]
    for values in several:
        if name in values:
            return np.asarray(values[name])
    known = ", ".join(key for values in several for key in values) or "none, the data have no names"
    fix = f"no such array; there are: {known}; or give 'bins:10', or 'package.module:function'"
    raise _refused(name, fix)
