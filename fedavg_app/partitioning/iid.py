"""IID: shuffled and split evenly."""

from fedavg_app.partitioning.partitioner import Indices, Labels, Partitioner, split_by_library
from tasks.random_streams import numpy_generator


class Iid(Partitioner):
    """Shuffle the examples and split them evenly (arXiv 1602.05629v4, section 3, "IID")."""

    def split(self, labels: Labels, num_clients: int, seed: int) -> list[Indices]:
        """Return parts whose sizes differ by one at most; all examples are used."""
        from flwr_datasets.partitioner import IidPartitioner

        order = numpy_generator(seed, "partition").permutation(len(labels))
        return split_by_library(IidPartitioner(num_clients), {"index": order})
