"""FEMNIST: handwritten characters by writer, LEAF's task, from the Hugging Face hub.

S. Caldas et al.: LEAF: A Benchmark for Federated Settings. arXiv 1812.01097. The CNN and the
learning rate are those of LEAF's code. Every tenth row is held out, so that all writers are tested.
"""

from dataclasses import replace

import numpy as np
from torch import Tensor, nn

from tasks.base import Task
from tasks.data.dataset import DataOptions, Dataset
from tasks.data.map_style import MapStyleSplit, hub_dataset

HELD_OUT_EVERY = 10
every_row = hub_dataset(
    "flwrlabs/femnist", "image", "character", owner="writer_id", test="train[:1]"
)


def load(options: DataOptions) -> Dataset:
    """Return the characters, by writer; DataError if the hub cannot be reached."""
    found = every_row(options)
    held_out = np.arange(len(found.train)) % HELD_OUT_EVERY == HELD_OUT_EVERY - 1

    def rows(chosen: np.ndarray[tuple[int], np.dtype[np.int64]]) -> MapStyleSplit:
        whole = found.train
        assert isinstance(whole, MapStyleSplit)
        assert whole.labels is not None
        assert whole.owners is not None
        return replace(
            whole, inputs=whole.inputs.select(chosen), labels=whole.labels[chosen],
            owners=whole.owners[chosen],
        )  # fmt: skip

    training, testing = rows(np.flatnonzero(~held_out)), rows(np.flatnonzero(held_out))
    return Dataset.of(training, testing, options, found.description)


def cnn() -> nn.Module:
    """Return LEAF's CNN, two 5x5 convolutions, each pooled, and 2,048 units: 6,603,710."""
    return nn.Sequential(
        nn.Conv2d(1, 32, kernel_size=5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, kernel_size=5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(7 * 7 * 64, 2048),
        nn.ReLU(),
        nn.Linear(2048, 62),
    )


def prepare(images: Tensor) -> Tensor:
    """Turn uint8 images (n, 1, 28, 28) into float32 from 0 to 1."""
    return images.float() / 255


FEMNIST_CNN = Task(
    "femnist-cnn",
    cnn,
    load,
    prepare,
    learning_rate=0.004,
    partitions=("natural", "iid", "shards", "classes", "dirichlet"),
)
