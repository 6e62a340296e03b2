"""Shards: sorted by label, cut into shards, some at random for each client."""

import numpy as np

from fedavg_app.errors import ConfigError
from fedavg_app.partitioning.partitioner import Indices, Labels, Positive, UnbalancedPartitioner
from tasks.training.random_streams import derive_seed, numpy_generator


class Shards(UnbalancedPartitioner):
    """Sort by label, cut into shards, give each client some at random.

    The FedAvg paper's pathological non-IID split (arXiv 1602.05629v4, section 3): 200 shards of 300
    and 2 for each of 100 clients. Examples that do not fill a shard are left out. With gamma < 1
    the shards are unequal, in a random order along the sorted examples.
    """

    shards_per_client: Positive = 2

    def split(self, labels: Labels, num_clients: int, seed: int) -> list[Indices]:
        """Return every client's shards."""
        count = num_clients * self.shards_per_client
        if count > len(labels):
            fix = f"more clients ({count} shards) than the {len(labels)} examples; give fewer"
            raise ConfigError("num-clients", num_clients, fix)
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
