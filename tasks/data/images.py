"""Labelled images as the libraries torchvision and datasets return them.

Inputs are uint8 (n, h, w), of coloured images (n, 3, h, w).
"""

from pathlib import Path
from typing import Any

import numpy as np

from tasks.data.dataset import Split, Splits


def read_torchvision(name: str, folder: Path, *, download: bool = False) -> Splits:
    """Return (train, test) of a data set of torchvision, which checks its files' checksums."""
    from torchvision import datasets  # slow to import: only a cache miss pays for it

    kind = getattr(datasets, name)
    train, test = (kind(folder, train=train, download=download) for train in (True, False))
    return _split(train.data, train.targets), _split(test.data, test.targets)


def read_hub(splits: Any, column: str) -> Splits:
    """Return (train, test) of what `datasets.load_dataset` returns.

    Args:
        splits: The rows of "train" and "test", which have a column "label".
        column: The column with the images.
    """
    train, test = (
        _split(
            np.stack([np.asarray(image) for image in splits[name][column]]), splits[name]["label"]
        )
        for name in ("train", "test")
    )
    return train, test


def _split(images: Any, labels: Any) -> Split:
    pixels = np.asarray(images)
    if pixels.ndim == 4:
        pixels = np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))
    return Split(pixels, np.asarray(labels, dtype=np.int64))
