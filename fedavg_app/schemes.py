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
# How often a draw that leaves a client with too little is repeated.
DRAWS = 10


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

    def settle(self, labels: Labels, num_clients: int, seed: int) -> int:
        """Return the seed that `split` is to be called with for all splits of a data set.

        Args:
            labels: Of the training set, which decides where some draws have to be repeated.
            num_clients: K.
            seed: The run's seed.
        """
        del labels, num_clients
        return seed

    @abstractmethod
    def split(self, labels: Labels, num_clients: int, seed: int) -> list[Indices]:
        """Return the disjoint indices of the clients' examples, for what `check` let pass.

        Args:
            labels: The target of every example, (n,) int64.
            num_clients: K.
            seed: As `settle` returns it.
        """


class Unequal(Scheme):
    """What schemes with unequal shares have in common: the STC paper's formula of sizes.

    phi_i = alpha / m + (1 - alpha) gamma^i / sum_j gamma^j is the share of the i-th of m parts
    (arXiv 1903.02891; alpha from its authors' code).
    """

    # gamma; 1 makes all parts equal.
    balancedness: Annotated[float, Field(gt=0, le=1)] = 1.0
    # alpha, the part of the examples that is shared out evenly whatever gamma.
    minimum_share: Annotated[float, Field(ge=0, le=1)] = 0.1

    def sizes(self, num_examples: int, parts: int) -> list[int]:
        """Return floor(phi_i n) for every part, in ascending order."""
        powers = self.balancedness ** np.arange(parts)[::-1]
        alpha = self.minimum_share
        shares = alpha / parts + (1 - alpha) * powers / powers.sum()
        # What is a whole number but for the rounding of floats counts as one.
        return [int(share * num_examples + 1e-9) for share in shares]

    def check_sizes(self, labels: Labels, num_clients: int, parts: int) -> None:
        """Check that the smallest part has an example.

        Raises:
            ConfigError: It has none.
        """
        if self.sizes(len(labels), parts)[0] == 0:
            raise ConfigError(
                "partition-args",
                f"balancedness = {self.balancedness}",
                f"some of the {num_clients} clients would have none of the {len(labels)} examples; "
                "give a larger balancedness or minimum-share, or fewer clients",
            )


class Iid(Scheme):
    """Shuffle, then share out evenly (arXiv 1602.05629v4, section 3, "IID")."""

    def split(self, labels: Labels, num_clients: int, seed: int) -> list[Indices]:
        """Return shares that differ by one example at the most; all examples are used."""
        from flwr_datasets.partitioner import IidPartitioner

        order = stream(seed, "partition").permutation(len(labels))
        return _partition(IidPartitioner(num_clients), {"index": order})


class Shards(Unequal):
    """Sort by label, cut into shards, give each client some at random.

    The paper's pathological non-IID split (arXiv 1602.05629v4, section 3): 200 shards of 300 and 2
    for each of 100 clients. Examples that do not fill a shard are left out. With gamma < 1 the
    shards are unequal, in a random order along the sorted examples.
    """

    shards_per_client: Positive = 2

    def check(self, labels: Labels, num_clients: int) -> None:
        """Check that every shard gets an example.

        Raises:
            ConfigError: More shards than examples, or some would be empty.
        """
        super().check(labels, num_clients)
        shards = num_clients * self.shards_per_client
        if shards > len(labels):
            raise _too_many(num_clients, f"clients ({shards} shards)", labels)
        self.check_sizes(labels, num_clients, shards)

    def split(self, labels: Labels, num_clients: int, seed: int) -> list[Indices]:
        """Return every client's shards."""
        if self.balancedness < 1:
            return self._unequal(labels, num_clients, seed)
        from flwr_datasets.partitioner import ShardPartitioner

        partitioner = ShardPartitioner(
            num_clients,
            partition_by="label",
            num_shards_per_partition=self.shards_per_client,
            shuffle=False,
            seed=integer(seed, "partition"),
        )
        # The library's sort need not be stable; sorted input makes the result independent of that.
        order = np.argsort(labels, kind="stable")
        return _partition(partitioner, {"label": labels[order], "index": order})

    def _unequal(self, labels: Labels, num_clients: int, seed: int) -> list[Indices]:
        random = stream(seed, "partition")
        sizes = self.sizes(len(labels), num_clients * self.shards_per_client)
        cuts = np.cumsum(random.permutation(sizes))
        shards = np.split(np.argsort(labels, kind="stable"), cuts)[: len(sizes)]
        hands = random.permutation(len(shards)).reshape(num_clients, self.shards_per_client)
        return [np.concatenate([shards[shard] for shard in hand]) for hand in hands]


class Dirichlet(Scheme):
    """Draw each class's shares of the clients from a Dirichlet distribution.

    The smaller alpha, the fewer clients have most of a class. Where a client would have fewer than
    `minimum_examples` training examples, all is drawn again.
    """

    alpha: Annotated[float, Field(gt=0)] = 0.5
    minimum_examples: Positive = 1

    def settle(self, labels: Labels, num_clients: int, seed: int) -> int:
        """Return the first seed whose draw gives every client enough training examples.

        Raises:
            ConfigError: None of ten does.
        """
        for attempt in range(DRAWS):
            settled = integer(seed, "partition", attempt + 1)
            found = self._draw(labels, num_clients, settled)
            if min(map(len, found)) >= self.minimum_examples:
                return settled
        raise ConfigError(
            "partition-args",
            f"alpha = {self.alpha}, minimum-examples = {self.minimum_examples}",
            f"{DRAWS} draws left some of the {num_clients} clients with fewer of the {len(labels)} "
            "training examples; give a larger alpha, a smaller minimum-examples or fewer clients",
        )

    def split(self, labels: Labels, num_clients: int, seed: int) -> list[Indices]:
        """Return the clients' shares; all examples are used.

        Raises:
            ConfigError: A client would have none.
        """
        found = self._draw(labels, num_clients, seed)
        if not all(map(len, found)):
            raise ConfigError(
                "partition-args",
                f"alpha = {self.alpha}",
                f"some of the {num_clients} clients would have none of the {len(labels)} examples "
                "of this split; give a larger alpha, fewer clients or fraction-evaluate = 0",
            )
        return found

    def _draw(self, labels: Labels, num_clients: int, seed: int) -> list[Indices]:
        from flwr_datasets.partitioner import DirichletPartitioner

        partitioner = DirichletPartitioner(
            num_clients,
            partition_by="label",
            alpha=self.alpha,
            min_partition_size=0,
            self_balancing=False,
            seed=seed,
        )
        return _partition(partitioner, {"label": labels, "index": np.arange(len(labels))})


class Natural(Scheme):
    """One client for each owner of the data, for example a speaking role.

    With fewer clients than owners the clients are owners drawn at random, in their order.
    """

    def check(self, labels: Labels, num_clients: int) -> None:
        """Check that there are so many owners.

        Raises:
            ConfigError: There are fewer.
        """
        owners = len(np.unique(labels))
        if num_clients > owners:
            raise ConfigError(
                "num-clients", num_clients, f"the data have only {owners} owners; give fewer"
            )

    def split(self, labels: Labels, num_clients: int, seed: int) -> list[Indices]:
        """Return each owner's examples, in their order; ``labels`` are the owners."""
        order = np.argsort(labels, kind="stable")
        owners, starts = np.unique(labels[order], return_index=True)
        held = np.split(order, starts[1:])
        chosen = stream(seed, "partition").choice(len(owners), num_clients, replace=False)
        return [held[owner] for owner in np.sort(chosen)]


class Classes(Unequal):
    """Give each client examples of a few classes, and the clients unequally many examples.

    The STC paper's split (arXiv 1903.02891), with the details of its authors' code: client i gets
    n_i = floor(phi_i n) examples, phi_i = alpha / K + (1 - alpha) gamma^i / sum_j gamma^j, in
    reversed order, so the last client has the most. It takes n_i / `classes_per_client` of a class
    drawn at random, as many of the next, and so on until it has n_i; a class that is used up gives
    what it still has. So a few clients have examples of more classes than asked for, those above
    all that come last.
    """

    classes_per_client: Positive = 2

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
        self.check_sizes(labels, num_clients, num_clients)

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


def _partition(partitioner: "Partitioner", columns: dict[str, NDArray[np.int64]]) -> list[Indices]:
    """Run a partitioner of the library on these columns; return each client's "index"."""
    import datasets

    partitioner.dataset = datasets.Dataset.from_dict(columns)
    # As arrays: a column read any other way is read value by value.
    parts = map(partitioner.load_partition, range(partitioner.num_partitions))
    return [np.asarray(part.with_format("numpy")[:]["index"], dtype=np.int64) for part in parts]
