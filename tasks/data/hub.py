"""Labelled images as `datasets.load_dataset` returns them."""

from typing import Any

import numpy as np

from tasks.data.dataset import Split


def read_images(splits: Any, column: str) -> tuple[Split, Split]:
    """Return (train, test) of a data set with images in ``column`` and a column "label".

    Inputs are uint8 (n, h, w), of coloured images (n, 3, h, w).
    """
    train, test = (
        Split(
            np.stack([_channels_first(image) for image in splits[name][column]]),
            np.asarray(splits[name]["label"], dtype=np.int64),
        )
        for name in ("train", "test")
    )
    return train, test


def _channels_first(image: Any) -> np.ndarray[Any, np.dtype[np.uint8]]:
    pixels = np.asarray(image, dtype=np.uint8)
    return np.moveaxis(pixels, -1, 0) if pixels.ndim == 3 else pixels
