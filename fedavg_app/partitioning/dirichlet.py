"""Dirichlet: each class's shares drawn from a Dirichlet distribution."""

from typing import Annotated

import numpy as np
from pydantic import Field

from fedavg_app.errors import ConfigError
from fedavg_app.partitioning.partitioner import Indices, Labels, Partitioner, Positive, Rows, joined
from tasks.training.random_streams import derive_seed

# How often a draw that leaves a client with too few examples is repeated.
MAX_DRAWS = 10


class Dirichlet(Partitioner):
    """Draw each class's shares of the clients from a Dirichlet distribution.

    The smaller alpha is, the fewer clients have most of a class. If a client would have fewer than
    `minimum_examples` training examples, all shares are drawn again.
    """

    alpha: Annotated[float, Field(gt=0)] = 0.5
    minimum_examples: Positive = 1

    def resolve_seed(self, labels: Labels, num_clients: int, seed: int) -> int:
        """Return the first seed whose draw gives every client enough training examples.

        Raises:
            ConfigError: None of ten does.
        """
        for attempt in range(MAX_DRAWS):
            derived = derive_seed(seed, "partition", attempt + 1)
            lengths = self._lengths(labels, num_clients, np.random.default_rng(derived))
            if lengths.sum(axis=0).min() >= self.minimum_examples:
                return derived
        raise ConfigError(
            "partition-args",
            f"alpha = {self.alpha}, minimum-examples = {self.minimum_examples}",
            f"{MAX_DRAWS} draws left some of the {num_clients} clients with fewer of the "
            f"{len(labels)} training examples; give a larger alpha, a smaller minimum-examples or "
            "fewer clients",
        )

    def split(self, labels: Labels, num_clients: int, seed: int) -> Rows:
        """Return what `flwr_datasets.partitioner.DirichletPartitioner` does."""
        random = np.random.default_rng(seed)
        lengths = self._lengths(labels, num_clients, random)
        starts = (np.cumsum(lengths) - lengths.ravel()).reshape(lengths.shape)
        places = joined(starts.T.ravel(), lengths.T.ravel())
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
