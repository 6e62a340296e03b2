"""The IDX files of MNIST and its relatives: two pairs of images and labels, plain or gzipped."""

import gzip
import shutil
import tempfile
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tasks.data.dataset import DataError, Split

FILES = (
    ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
)


def find(directory: Path) -> list[Path]:
    """Return the four files in the order of `FILES`, each plain or with ".gz".

    Raises:
        DataError: One of the files is missing.
    """
    found = []
    for name in (name for pair in FILES for name in pair):
        candidates = [directory / name, directory / f"{name}.gz"]
        path = next((path for path in candidates if path.is_file()), None)
        if path is None:
            raise DataError(
                f"data-dir = {str(directory)!r} has no {name} or {name}.gz; "
                "put the four canonical IDX files there"
            )
        found.append(path)
    return found


def read(paths: list[Path]) -> tuple[Split, Split]:
    """Read the four files that `find` returns into (train, test).

    Raises:
        DataError: A file is truncated or no IDX file of that kind, or counts do not match.
    """
    splits = []
    for images_path, labels_path in (paths[:2], paths[2:]):
        images = _read(images_path, dimensions=3)
        labels = _read(labels_path, dimensions=1)
        if len(images) != len(labels):
            raise DataError(
                f"{images_path} has {len(images)} images but {labels_path} "
                f"{len(labels)} labels; fetch both files again"
            )
        splits.append(Split(images, labels.astype(np.int64)))
    return splits[0], splits[1]


def _read(path: Path, dimensions: int) -> NDArray[np.uint8]:
    # torchvision reads plain files only, and is slow to import: only a cache miss pays for it.
    from torchvision.datasets.mnist import read_sn3_pascalvincent_tensor

    with tempfile.NamedTemporaryFile() as plain:
        try:
            opener = gzip.open if path.suffix == ".gz" else open
            with opener(path, "rb") as packed:
                shutil.copyfileobj(packed, plain)
            plain.flush()
            array: NDArray[np.generic] = read_sn3_pascalvincent_tensor(plain.name).numpy()
        except (
            OSError,
            EOFError,
            zlib.error,
            AssertionError,
            ValueError,
            KeyError,
            RuntimeError,
        ) as error:
            raise DataError(
                f"{path} is corrupt or truncated ({_reason(error)}); fetch it again"
            ) from error
    if array.ndim != dimensions or array.dtype != np.uint8:
        raise DataError(
            f"{path} holds {array.dtype} in {array.ndim} dimensions, not the bytes in "
            f"{dimensions} of this file; are files mixed up?"
        )
    return array.astype(np.uint8, copy=False)


def _reason(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else "its size does not match its header"
