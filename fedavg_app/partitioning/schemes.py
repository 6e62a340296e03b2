"""The built-in partitioners: IID, shards, classes, Dirichlet and natural."""

from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedavg_app.errors import ConfigError
from fedavg_app.partitioning.partitioner import Indices, Labels, Partitioner, Rows
from tasks.data.dataset import Dataset
from tasks.training.random_streams import derive_seed, numpy_generator

Positive = Annotated[int, Field(ge=1)]
# The stream that partitions are drawn from.
STREAM = "partition"


class Iid(Partitioner):
    """Shuffle the examples and split them evenly (arXiv 1602.05629v4, section 3, "IID")."""

    needs_labels: ClassVar[bool] = False

    def split(self, labels: Labels, num_clients: int, seed: int) -> Rows:
        """Return parts whose sizes differ by one at most; all examples are used."""
        # What `flwr_datasets.partitioner.IidPartitioner` returns.
        order = numpy_generator(seed, STREAM).permutation(len(labels))
        size, larger = divmod(len(order), num_clients)
        return Rows.of(order, size + (np.arange(num_clients) < larger))


class Natural(Partitioner):
    """One client for each owner of the data, for example a speaking role.

    With fewer clients than owners, the clients are owners drawn at random, in their order.
    """

    def labels(self, data: Dataset) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the owners, which both splits must have."""
        train, test = super().labels(data)
        if not np.array_equal(np.unique(train), np.unique(test)):
            fix = "the test set has other owners than the training set"
            raise ConfigError("partition", "natural", fix)
        return train, test

    def split(self, labels: Labels, num_clients: int, seed: int) -> Rows:
        """Return each owner's examples, in their order; ``labels`` are the owners."""
        order = np.argsort(labels, kind="stable")
        owners, starts, sizes = np.unique(labels[order], return_index=True, return_counts=True)
        if num_clients > len(owners):
            fix = f"the data have only {len(owners)} owners; give fewer"
            raise ConfigError("num-clients", num_clients, fix)
        chosen = numpy_generator(seed, STREAM).choice(len(owners), num_clients, replace=False)
        chosen.sort()
        return Rows.of(order[_joined(starts[chosen], sizes[chosen])], sizes[chosen])


class Dirichlet(Partitioner):
    """Draw each class's shares of the clients from a Dirichlet distribution.

    The smaller alpha is, the fewer clients have most of a class. If a client would have fewer than
    `minimum_examples` training examples, all shares are drawn again, up to `MAX_DRAWS` times.
    """

    MAX_DRAWS: ClassVar[int] = 10

    alpha: Annotated[float, Field(gt=0)] = 0.5
    minimum_examples: Positive = 1

    def resolve_seed(self, labels: Labels, num_clients: int, seed: int) -> int:
        """Return the first seed whose draw gives every client enough training examples.

        Raises:
            ConfigError: None does.
        """
        for attempt in range(self.MAX_DRAWS):
            derived = derive_seed(seed, STREAM, attempt + 1)
            lengths = self._lengths(labels, num_clients, np.random.default_rng(derived))
            if lengths.sum(axis=0).min() >= self.minimum_examples:
                return derived
        raise ConfigError(
            "partition-args",
            f"alpha = {self.alpha}, minimum-examples = {self.minimum_examples}",
            f"{self.MAX_DRAWS} draws left some of the {num_clients} clients with fewer of the "
            f"{len(labels)} training examples; give a larger alpha, a smaller minimum-examples or "
            "fewer clients",
        )

    def split(self, labels: Labels, num_clients: int, seed: int) -> Rows:
        """Return what `flwr_datasets.partitioner.DirichletPartitioner` does."""
        random = np.random.default_rng(seed)
        lengths = self._lengths(labels, num_clients, random)
        starts = (np.cumsum(lengths) - lengths.ravel()).reshape(lengths.shape)
        places = _joined(starts.T.ravel(), lengths.T.ravel())
        rows = Rows.of(np.argsort(labels, kind="stable")[places], lengths.sum(axis=0))
        for part in rows:
            random.shuffle(part)
        return rows

    def _lengths(self, labels: Labels, num_clients: int, random: np.random.Generator) -> Indices:
        """Draw how many examples of each class the clients have, (classes, K)."""
        lengths = []
        for count in np.unique(labels, return_counts=True)[1]:
            ends = np.cumsum(random.dirichlet(np.full(num_clients, self.alpha))) * count
            lengths.append(np.diff(ends.astype(int)[:-1], prepend=0, append=count))
        return np.stack(lengths)


class Unbalanced(Partitioner):
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


class Shards(Unbalanced):
    """Sort by label, cut into shards, give each client some at random.

    The FedAvg paper's pathological non-IID split (arXiv 1602.05629v4, section 3): 200 shards of 300
    and 2 for each of 100 clients. Sizes differ by one where they do not come out even, and no
    example is left out. With gamma < 1 the shards are unequal, in a random order along the sorted
    examples.
    """

    shards_per_client: Positive = 2

    def split(self, labels: Labels, num_clients: int, seed: int) -> Rows:
        """Return every client's shards."""
        count = num_clients * self.shards_per_client
        if count > len(labels):
            fix = f"more clients ({count} shards) than the {len(labels)} examples; give fewer"
            raise ConfigError("num-clients", num_clients, fix)
        random = np.random.default_rng(derive_seed(seed, STREAM))
        chosen = random.permutation(count)
        ends = np.cumsum(random.permutation(self.shares(count)))
        # Ends that miss an integer by rounding only count as that integer.
        places = (ends[:-1] * len(labels) + 1e-6).astype(np.int64)
        bounds = np.concatenate([[0], places, [len(labels)]])
        lengths = np.diff(bounds)[chosen]
        order = np.argsort(labels, kind="stable")[_joined(bounds[chosen], lengths)]
        return Rows.of(order, lengths.reshape(num_clients, -1).sum(axis=1))


class Classes(Unbalanced):
    """Give each client examples of a few classes, and the clients unequally many examples.

    The STC paper's split (arXiv 1903.02891), with the details of its authors' code: client i gets
    n_i = floor(phi_i n) examples, phi_i = alpha / K + (1 - alpha) gamma^i / sum_j gamma^j, in
    reversed order, so the last client has the most. It takes n_i / `classes_per_client` of a class
    drawn at random, as many of the next, and so on until it has n_i; a class that is used up gives
    what it still has. So some clients have examples of more classes than asked for: where n_i is no
    multiple of `classes_per_client`, and above all the last ones.
    """

    classes_per_client: Positive = 2

    def sizes(self, num_examples: int, num_clients: int) -> list[int]:
        """Return floor(phi_i n) for every client, in ascending order."""
        # Products that miss an integer by rounding only count as that integer.
        return [int(share * num_examples + 1e-9) for share in self.shares(num_clients)]

    def split(self, labels: Labels, num_clients: int, seed: int) -> Rows:
        """Return what each client takes of the classes, one class after the other."""
        classes, counts = np.unique(labels, return_counts=True)
        if self.classes_per_client > len(classes):
            value = f"classes-per-client = {self.classes_per_client}"
            raise ConfigError("partition-args", value, f"there are only {len(classes)} classes")
        sizes = self.sizes(len(labels), num_clients)
        random = numpy_generator(seed, STREAM)
        # Drawn first, so that every split of a data set gives a client the same first class.
        starts = random.integers(len(classes), size=num_clients)
        drawn = [random.permutation(np.flatnonzero(labels == label)) for label in classes]
        ends = np.cumsum(counts).tolist()  # of the classes, one after the other
        places = [0, *ends[:-1]]  # what is left of a class begins there
        pieces: list[tuple[int, int]] = []
        for start, size in zip(starts.tolist(), sizes, strict=True):
            portion, left, label = max(1, size // self.classes_per_client), size, start
            while left > 0:
                length = min(portion, left, ends[label] - places[label])
                pieces.append((places[label], length))
                places[label] += length
                left -= length
                label = (label + 1) % len(classes)
        runs = np.array(pieces, np.int64).reshape(-1, 2)
        return Rows.of(np.concatenate(drawn)[_joined(*runs.T)], sizes)


def _joined(starts: Indices, lengths: Indices) -> Indices:
    """Return start, start + 1, ... of every run, one run after the other."""
    ends = np.cumsum(lengths)
    places = np.arange(ends[-1])
    places += np.repeat(starts - ends + lengths, lengths)
    return places
