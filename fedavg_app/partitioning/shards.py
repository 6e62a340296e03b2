"""Shards: sorted by label, cut into shards, some at random for each client."""

import numpy as np

from fedavg_app.partitioning.partitioner import (
    Indices,
    Labels,
    Positive,
    UnbalancedPartitioner,
    too_many,
)
from tasks.training.random_streams import derive_seed, numpy_generator


class Shards(UnbalancedPartitioner):
    """Sort by label, cut into shards, give each client some at random.

    The FedAvg paper's pathological non-IID split (arXiv 1602.05629v4, section 3): 200 shards of 300
    and 2 for each of 100 clients. Examples that do not fill a shard are left out. With gamma < 1
    the shards are unequal, in a random order along the sorted examples.
    """

    shards_per_client: Positive = 2

    def check(self, labels: Labels, num_clients: int) -> None:
        """Check that every shard gets an example.

        Raises:
            ConfigError: There are more shards than examples, or some would be empty.
        """
        super().check(labels, num_clients)
        shards = num_clients * self.shards_per_client
        if shards > len(labels):
            raise too_many(num_clients, f"clients ({shards} shards)", labels)
        self.check_sizes(labels, num_clients, shards)

    def split(self, labels: Labels, num_clients: int, seed: int) -> list[Indices]:
        """Return every client's shards."""
        count = num_clients * self.shards_per_client
        if self.balancedness < 1:
            random = numpy_generator(seed, "partition")
            sizes = random.permutation(self.sizes(len(labels), count))
        else:  # as `flwr_datasets.partitioner.ShardPartitioner`, which draws from all whole shards
            random = np.random.default_rng(derive_seed(seed, "partition"))
            size = len(labels) // count
            sizes = np.full(len(labels) // size, size)
        shards = np.split(np.argsort(labels, kind="stable"), np.cumsum(sizes))
        chosen = random.permutation(len(sizes))[:count].reshape(num_clients, -1)
        return [np.concatenate([shards[shard] for shard in of_client]) for of_client in chosen]
