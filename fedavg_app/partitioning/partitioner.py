"""`Partitioner`: a way to split examples among clients; its fields are its arguments.

Those that `flwr_datasets.partitioner` also has return the same indices, `shards` where all have one
size, without the milliseconds that it takes for each client.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import BaseModel, ConfigDict, Field

Labels = NDArray[np.int64]
Indices = NDArray[np.int64]
Positive = Annotated[int, Field(ge=1)]


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


def joined(starts: Indices, lengths: Indices) -> Indices:
    """Return start, start + 1, ... of every run, one run after the other."""
    ends = np.cumsum(lengths)
    places = np.arange(ends[-1])
    places += np.repeat(starts - ends + lengths, lengths)
    return places


class Partitioner(BaseModel, ABC):
    """A way to split examples among clients, fixed by the seed."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

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


class UnbalancedPartitioner(Partitioner):
    """A partitioner whose parts may have unequal sizes, by the STC paper's formula.

    phi_i = alpha / m + (1 - alpha) gamma^i / sum_j gamma^j is the share of the i-th of m parts
    (arXiv 1903.02891; alpha from its authors' code).
    """

    # gamma; 1 makes all parts equal.
    balancedness: Annotated[float, Field(gt=0, le=1)] = 1.0
    # alpha, the part of the examples that is shared out evenly whatever gamma.
    minimum_share: Annotated[float, Field(ge=0, le=1)] = 0.1

    def shares(self, parts: int) -> NDArray[np.float64]:
        """Return phi_i for every part, float64 (parts,), in ascending order."""
        powers = self.balancedness ** np.arange(parts)[::-1]
        alpha = self.minimum_share
        return np.asarray(alpha / parts + (1 - alpha) * powers / powers.sum())

    def sizes(self, num_examples: int, parts: int) -> list[int]:
        """Return floor(phi_i n) for every part, in ascending order."""
        # Products that miss an integer by rounding only count as that integer.
        return [int(share * num_examples + 1e-9) for share in self.shares(parts)]
