"""Classes: the STC paper's split by classes, with unequal sizes if wanted."""

import numpy as np

from fedavg_app.errors import ConfigError
from fedavg_app.partitioning.partitioner import (
    Labels,
    Positive,
    Rows,
    UnbalancedPartitioner,
    joined,
)
from tasks.training.random_streams import numpy_generator


class Classes(UnbalancedPartitioner):
    """Give each client examples of a few classes, and the clients unequally many examples.

    The STC paper's split (arXiv 1903.02891), with the details of its authors' code: client i gets
    n_i = floor(phi_i n) examples, phi_i = alpha / K + (1 - alpha) gamma^i / sum_j gamma^j, in
    reversed order, so the last client has the most. It takes n_i / `classes_per_client` of a class
    drawn at random, as many of the next, and so on until it has n_i; a class that is used up gives
    what it still has. So some clients have examples of more classes than asked for: where n_i is no
    multiple of `classes_per_client`, and above all the last ones.
    """

    classes_per_client: Positive = 2

    def split(self, labels: Labels, num_clients: int, seed: int) -> Rows:
        """Return what each client takes of the classes, one class after the other."""
        classes, counts = np.unique(labels, return_counts=True)
        if self.classes_per_client > len(classes):
            value = f"classes-per-client = {self.classes_per_client}"
            raise ConfigError("partition-args", value, f"there are only {len(classes)} classes")
        sizes = self.sizes(len(labels), num_clients)
        random = numpy_generator(seed, "partition")
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
        return Rows.of(np.concatenate(drawn)[joined(*runs.T)], sizes)
