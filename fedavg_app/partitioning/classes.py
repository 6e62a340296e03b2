"""Classes: the STC paper's split by classes, with unequal sizes if wanted."""

import numpy as np

from fedavg_app.errors import ConfigError
from fedavg_app.partitioning.partitioner import Indices, Labels, Positive, UnbalancedPartitioner
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

    def split(self, labels: Labels, num_clients: int, seed: int) -> list[Indices]:
        """Return what each client takes of the classes, one class after the other."""
        classes = np.unique(labels)
        if self.classes_per_client > len(classes):
            value = f"classes-per-client = {self.classes_per_client}"
            raise ConfigError("partition-args", value, f"there are only {len(classes)} classes")
        sizes = self.sizes(len(labels), num_clients)
        random = numpy_generator(seed, "partition")
        # Drawn first, so that every split of a data set gives a client the same first class.
        starts = random.integers(len(classes), size=num_clients)
        left = [random.permutation(np.flatnonzero(labels == label)) for label in classes]
        parts = []
        for start, size in zip(starts, sizes, strict=True):
            portion = max(1, size // self.classes_per_client)
            taken: list[Indices] = [left[0][:0]]
            current = int(start)
            while size > 0:
                piece = left[current][: min(portion, size)]
                left[current] = left[current][len(piece) :]
                taken.append(piece)
                size -= len(piece)
                current = (current + 1) % len(classes)
            parts.append(np.concatenate(taken))
        return parts
