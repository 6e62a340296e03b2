"""How a partition distributes the training examples on the clients, in numbers."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedavg_app.config import RunConfig
from fedavg_app.partitioning.partitions import partition
from tasks.data.dataset import Dataset

# With more classes than this, counts by class make no readable table.
MAX_CLASSES = 20


@dataclass(frozen=True)
class DataDistribution:
    """Per-client data distribution.

    Attributes:
        sizes: Training examples by client, (K,).
        classes: Training examples by client and class, (K, classes); None where examples have no
            single class.
        total: All training examples, including those of no client.
    """

    sizes: NDArray[np.int64]
    classes: NDArray[np.int64] | None
    total: int


def data_distribution(data: Dataset, config: RunConfig) -> DataDistribution:
    """Return the distribution of the training set under a run config.

    Raises:
        ConfigError: The data cannot be split like that.
    """
    parts = partition(data, "train", config)
    targets = data.train.targets
    classes = None
    if targets.ndim == 1 and targets.max() < MAX_CLASSES:
        count = int(targets.max()) + 1
        classes = np.stack([np.bincount(targets[part], minlength=count) for part in parts])
    sizes = np.array([len(part) for part in parts], dtype=np.int64)
    return DataDistribution(sizes, classes, len(targets))


def class_deviations(classes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return each class's share of a client's examples, less that of all clients', (K, classes).

    Args:
        classes: Training examples by client and class, as in `DataDistribution`.
    """
    shares = classes / classes.sum(axis=1, keepdims=True)
    return np.asarray(shares - classes.sum(axis=0) / classes.sum())
