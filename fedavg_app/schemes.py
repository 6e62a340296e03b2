"""How examples can be split on clients: one class per scheme, whose fields are its arguments.

The schemes are those of `flwr_datasets.partitioner` where it has them.
"""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from fedavg_app.errors import ConfigError
from tasks.seeds import integer, stream

if TYPE_CHECKING:
    from flwr_datasets.partitioner import Partitioner

Labels = NDArray[np.int64]
Indices = NDArray[np.int64]
Positive = Annotated[int, Field(ge=1)]


class Scheme(BaseModel, ABC):
    """A way to split: `split` returns one index array per client, fixed by the seed."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    def check(self, labels: Labels, num_clients: int) -> None:
        """Check that there are enough examples.

        Raises:
            ConfigError: There are not.
        """
        if num_clients > len(labels):
            raise _too_many(num_clients, "clients", labels)

    @abstractmethod
    def split(self, labels: Labels, num_clients: int, seed: int) -> list[Indices]:
        """Return the disjoint indices of the clients' examples, for what `check` let pass.

        Args:
            labels: The target of every example, (n,) int64.
            num_clients: K.
            seed: The run's seed.
        """


class Iid(Scheme):
    """Shuffle, then share out evenly (arXiv 1602.05629v4, section 3, "IID")."""

    def split(self, labels: Labels, num_clients: int, seed: int) -> list[Indices]:
        """Return shares that differ by one example at the most; all examples are used."""
        from flwr_datasets.partitioner import IidPartitioner

        order = stream(seed, "partition").permutation(len(labels))
        return _partition(IidPartitioner(num_clients), labels, order)


class Shards(Scheme):
    """Sort by label, cut into equal shards, give each client some at random.

    The paper's pathological non-IID split (arXiv 1602.05629v4, section 3): 200 shards of 300 and 2
    for each of 100 clients. Examples that do not fill a shard are left out.
    """

    shards_per_client: Positive = 2

    def check(self, labels: Labels, num_clients: int) -> None:
        """Check that every shard gets an example.

        Raises:
            ConfigError: More shards than examples.
        """
        super().check(labels, num_clients)
        shards = num_clients * self.shards_per_client
        if shards > len(labels):
            raise _too_many(num_clients, f"clients ({shards} shards)", labels)

    def split(self, labels: Labels, num_clients: int, seed: int) -> list[Indices]:
        """Return shards of equal size."""
        from flwr_datasets.partitioner import ShardPartitioner

        partitioner = ShardPartitioner(
            num_clients,
            partition_by="label",
            num_shards_per_partition=self.shards_per_client,
            shuffle=False,
            seed=integer(seed, "partition"),
        )
        # The library's sort need not be stable; sorted input makes the result independent of that.
        return _partition(partitioner, labels, np.argsort(labels, kind="stable"))


class Classes(Scheme):
    """Give each client examples of a few classes, and the clients unequally many examples.

    The STC paper's split (arXiv 1903.02891), with the details of its authors' code: client i gets
    n_i = floor(phi_i n) examples, phi_i = alpha / K + (1 - alpha) gamma^i / sum_j gamma^j, in
    reversed order, so the last client has the most. It takes n_i / `classes_per_client` of a class
    drawn at random, as many of the next, and so on until it has n_i; a class that is used up gives
    what it still has. So a few clients have examples of more classes than asked for, those above
    all that come last.
    """

    classes_per_client: Positive = 2
    # gamma; 1 gives all clients the same number.
    balancedness: Annotated[float, Field(gt=0, le=1)] = 1.0
    # alpha, the part of the examples that is shared out evenly whatever gamma.
    minimum_share: Annotated[float, Field(ge=0, le=1)] = 0.1

    def check(self, labels: Labels, num_clients: int) -> None:
        """Check that every client gets an example, and that there are so many classes.

        Raises:
            ConfigError: A client would have none, or there are fewer classes than it should have.
        """
        super().check(labels, num_clients)
        classes = len(np.unique(labels))
        if self.classes_per_client > classes:
            value = f"classes-per-client = {self.classes_per_client}"
            raise ConfigError("partition-args", value, f"there are only {classes} classes")
        if self.sizes(len(labels), num_clients)[0] == 0:
            raise ConfigError(
                "partition-args",
                f"balancedness = {self.balancedness}",
                f"some of the {num_clients} clients would have none of the {len(labels)} examples; "
                "give a larger balancedness or minimum-share, or fewer clients",
            )

    def sizes(self, num_examples: int, num_clients: int) -> list[int]:
        """Return each client's number of examples, in ascending order."""
        powers = self.balancedness ** np.arange(num_clients)[::-1]
        alpha = self.minimum_share
        shares = alpha / num_clients + (1 - alpha) * powers / powers.sum()
        # What is a whole number but for the rounding of floats counts as one.
        return [int(share * num_examples + 1e-9) for share in shares]

    def split(self, labels: Labels, num_clients: int, seed: int) -> list[Indices]:
        """Return what each client takes on its walk through the classes."""
        random = stream(seed, "partition")
        classes = np.unique(labels)
        # Before all else, so that every split of a data set gives a client the same first class.
        starts = random.integers(len(classes), size=num_clients)
        left = [random.permutation(np.flatnonzero(labels == label)) for label in classes]
        found = []
        for start, size in zip(starts, self.sizes(len(labels), num_clients), strict=True):
            portion = max(1, size // self.classes_per_client)
            taken: list[Indices] = []
            current = int(start)
            while size > 0:
                piece = left[current][: min(portion, size)]
                left[current] = left[current][len(piece) :]
                taken.append(piece)
                size -= len(piece)
                current = (current + 1) % len(classes)
            found.append(np.concatenate(taken))
        return found


def _too_many(num_clients: int, what: str, labels: Labels) -> ConfigError:
    return ConfigError(
        "num-clients", num_clients, f"more {what} than the {len(labels)} examples; give fewer"
    )


def _partition(partitioner: "Partitioner", labels: Labels, order: Indices) -> list[Indices]:
    """Run a partitioner of the library on the examples in ``order``; return original indices."""
    import datasets

    partitioner.dataset = datasets.Dataset.from_dict({"label": labels[order], "index": order})
    return [
        np.asarray(partitioner.load_partition(client)["index"], dtype=np.int64)
        for client in range(partitioner.num_partitions)
    ]
