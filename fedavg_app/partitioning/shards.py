"""Shards: sorted by label, cut into shards, some at random for each client."""

import numpy as np

from fedavg_app.errors import ConfigError
from fedavg_app.partitioning.partitioner import (
    Labels,
    Positive,
    Rows,
    UnbalancedPartitioner,
    joined,
)
from tasks.training.random_streams import derive_seed


class Shards(UnbalancedPartitioner):
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
        random = np.random.default_rng(derive_seed(seed, "partition"))
        chosen = random.permutation(count)
        ends = np.cumsum(random.permutation(self.shares(count)))
        # Ends that miss an integer by rounding only count as that integer.
        places = (ends[:-1] * len(labels) + 1e-6).astype(np.int64)
        bounds = np.concatenate([[0], places, [len(labels)]])
        lengths = np.diff(bounds)[chosen]
        order = np.argsort(labels, kind="stable")[joined(bounds[chosen], lengths)]
        return Rows.of(order, lengths.reshape(num_clients, -1).sum(axis=1))
