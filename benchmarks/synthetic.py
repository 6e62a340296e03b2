"""A task for large populations: 1,000,000 made-up examples, ten for each of 100,000 clients."""

import numpy as np
import torch
from torch import Tensor, nn

from tasks.base import Task
from tasks.data.cache import load_cached
from tasks.data.dataset import DataOptions, Dataset, Split

TRAIN, TEST, FEATURES, CLASSES = 1_000_000, 10_000, 20, 10


def load(options: DataOptions) -> Dataset:
    """Return points around ten centres, and which centre each is around."""
    del options

    def parse() -> tuple[Split, Split]:
        rng = np.random.default_rng(1)
        targets = rng.integers(0, CLASSES, TRAIN + TEST)
        centres = rng.normal(size=(CLASSES, FEATURES))
        points = (centres[targets] + rng.normal(size=(TRAIN + TEST, FEATURES))).astype(np.float32)
        return Split(points[:TRAIN], targets[:TRAIN]), Split(points[TRAIN:], targets[TRAIN:])

    return load_cached("benchmark-synthetic-1", parse, DataOptions("made up"), "made-up points")


def prepare(points: Tensor) -> Tensor:
    """Return the points as they are."""
    return points.to(torch.float32)


TASK = Task(
    "synthetic", lambda: nn.Sequential(nn.Flatten(), nn.Linear(FEATURES, CLASSES)), load, prepare,
    learning_rate=0.1, partitions=("iid",),
)  # fmt: skip
