"""IID: shuffled and split evenly."""

import numpy as np

from fedavg_app.partitioning.partitioner import Labels, Partitioner, Rows
from tasks.training.random_streams import numpy_generator


class Iid(Partitioner):
    """Shuffle the examples and split them evenly (arXiv 1602.05629v4, section 3, "IID")."""

    def split(self, labels: Labels, num_clients: int, seed: int) -> Rows:
        """Return parts whose sizes differ by one at most; all examples are used."""
        # What `flwr_datasets.partitioner.IidPartitioner` returns, which takes milliseconds for each
        # client.
        order = numpy_generator(seed, "partition").permutation(len(labels))
        size, larger = divmod(len(order), num_clients)
        return Rows.of(order, size + (np.arange(num_clients) < larger))
