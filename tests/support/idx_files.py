"""Small IDX files, the format of MNIST and its relatives."""

import gzip

import numpy as np

NAMES = ["train-images-idx3-ubyte", "train-labels-idx1-ubyte",
         "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"]  # fmt: skip


def encode(array):
    """Return an IDX file by its specification: two zeros, type 8 (bytes), rank, sizes, data."""
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return bytes([0, 0, 8, array.ndim]) + sizes + array.astype(np.uint8).tobytes()


def write(folder, train=12, test=5):
    """Write images of noise, gzipped; return the arrays by name."""
    rng = np.random.default_rng(0)
    contents = {}
    for count, images, labels in ((train, *NAMES[:2]), (test, *NAMES[2:])):
        contents[images] = rng.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        contents[labels] = rng.integers(0, 10, count, dtype=np.uint8)
    for name, array in contents.items():
        replace(folder, name, array)
    return contents


def replace(folder, name, array):
    """Write one of the four files, gzipped."""
    (folder / f"{name}.gz").write_bytes(gzip.compress(encode(array)))
