"""Where CIFAR-10 comes from, and its two canonical forms: the binary and the python version."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from tasks.data.dataset import Schema, Split, Splits, reading
from tasks.data.formats import read_torchvision
from tasks.data.sources import Sources

SHAPE = (3, 32, 32)
RECORD = 1 + 3 * 32 * 32  # the binary version: a label, then the pixels
# The binary version's files; the last is the test set.
FILES = [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]
BINARY = "cifar-10-batches-bin"


def read(paths: list[Path]) -> Splits:
    """Read one of the forms into (train, test): inputs uint8 (n, 3, 32, 32), targets 0-9.

    Raises:
        DataError: A file is corrupt or truncated.
    """
    if paths[0].is_dir():
        return read_torchvision("CIFAR10", paths[0].parent)
    if len(paths) == 1:
        from torchvision.datasets.utils import extract_archive

        with TemporaryDirectory() as folder:
            with reading(paths[0]):
                extract_archive(paths[0], folder)
            return read([Path(folder) / BINARY / name for name in FILES])
    batches = []
    for path in paths:
        with reading(path):
            batches.append(np.fromfile(path, dtype=np.uint8).reshape(-1, RECORD))
    records = np.stack(batches)  # all six have the same number of images
    train, test = (
        Split(part[:, 1:].reshape(-1, *SHAPE), part[:, 0].astype(np.int64))
        for part in (np.concatenate(records[:-1]), records[-1])
    )
    return train, test


CIFAR10 = Sources(
    name="cifar10",
    label="CIFAR-10",
    files=(
        "CIFAR-10's six binary files or their archive, for example cifar-10-binary.tar.gz, or the "
        "folder cifar-10-batches-py of the python version"
    ),
    patterns=(
        tuple(f"{BINARY}/{name}" for name in FILES),
        tuple(FILES),
        ("cifar-10-batches-py",),
        ("cifar-10-binary.tar*",),
    ),
    read=read,
    schema=Schema(np.uint8, SHAPE, classes=10),
    torchvision="CIFAR10",
    column="img",
)
