"""Where CIFAR-10 comes from, and its two canonical forms: the binary and the python version."""

import tarfile
import zlib
from collections.abc import Iterator
from functools import partial
from lzma import LZMAError
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tasks.data.dataset import DataError, Split
from tasks.data.hub import read_images
from tasks.data.npz_archive import Schema
from tasks.data.sources import Sources, Splits

if TYPE_CHECKING:
    from torchvision import datasets

SHAPE = (3, 32, 32)
RECORD = 1 + 3 * 32 * 32  # the binary version: a label, then the pixels
# The binary version's files; the last is the test set.
FILES = [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]
BINARY, PYTHON, ARCHIVE = "cifar-10-batches-bin", "cifar-10-batches-py", "cifar-10-binary.tar*"


def find(folder: Path) -> list[Path]:
    """Return the six binary files, the archive that holds them, or the python version's folder.

    Raises:
        DataError: None is there, or some of the six are not.
    """
    for place in (folder / BINARY, folder):
        paths = [place / name for name in FILES]
        missing = [path for path in paths if not path.is_file()]
        if not missing:
            return paths
        if len(missing) < len(paths):
            raise DataError(f"{missing[0]} is missing; put all of {', '.join(FILES)} there")
    if (folder / PYTHON).is_dir():
        return [folder / PYTHON]
    if archives := sorted(folder.glob(ARCHIVE)):
        return archives[:1]
    raise DataError(f"data-dir = {str(folder)!r} has no CIFAR-10; {CIFAR10.ways()}")


def read(paths: list[Path]) -> Splits:
    """Read what `find` returns into (train, test): inputs uint8 (n, 3, 32, 32), targets 0-9.

    Raises:
        DataError: A file is corrupt or truncated.
    """
    if paths[0].is_dir():
        return _python(paths[0].parent)
    packed = len(paths) == 1
    contents = _archived(paths[0]) if packed else ((str(p), p.read_bytes()) for p in paths)
    parts = [_parse(name, content) for name, content in contents]
    if len(parts) != len(FILES):
        raise DataError(f"{paths[0]} has {len(parts)} batches, not {len(FILES)}; fetch it again")
    sizes = {len(labels) for _, labels in parts}
    if len(sizes) > 1:
        raise DataError(f"{paths[0].parent} has batches of {sizes} images, not of one size")
    train = Split(*(np.concatenate(arrays) for arrays in zip(*parts[:-1], strict=True)))
    return train, Split(*parts[-1])


def _archived(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the name and content of the six files in an archive, the test set last."""
    try:
        contents = {}
        with tarfile.open(path) as archive:
            for member in archive:  # in the archive's order, which decompresses it once
                name, file = Path(member.name).name, archive.extractfile(member)
                if file is not None and name in FILES:
                    contents[name] = file.read()
        yield from ((f"{path}:{name}", contents[name]) for name in FILES if name in contents)
    except (OSError, EOFError, tarfile.TarError, zlib.error, LZMAError) as error:
        raise DataError(f"{path} is corrupt or truncated ({error}); fetch it again") from error


def _parse(name: str, content: bytes) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the images and labels of one binary file."""
    if not content or len(content) % RECORD:
        raise DataError(
            f"{name} is truncated ({len(content)} bytes, not images of {RECORD}); fetch it again"
        )
    records = np.frombuffer(content, dtype=np.uint8).reshape(-1, RECORD)
    labels = records[:, 0].astype(np.int64)
    if labels.max() > 9:
        raise DataError(f"{name} is corrupt (a label that is not 0 to 9); fetch it again")
    return records[:, 1:].reshape(-1, *SHAPE), labels


def _python(folder: Path) -> Splits:
    """Read the python version, whose checksums torchvision verifies before it unpickles."""
    from torchvision import datasets  # slow to import: only a cache miss pays for it

    try:
        train, test = (datasets.CIFAR10(folder, train=train) for train in (True, False))
    except (RuntimeError, OSError) as error:
        fix = "fetch it again"
        raise DataError(f"{folder / PYTHON} is corrupt or incomplete ({error}); {fix}") from error
    return _split(train), _split(test)


def _split(images: "datasets.CIFAR10") -> Split:
    pixels = np.ascontiguousarray(images.data.transpose(0, 3, 1, 2))
    return Split(pixels, np.array(images.targets, dtype=np.int64))


CIFAR10 = Sources(
    name="cifar10",
    label="CIFAR-10",
    content="50,000 + 10,000 images",
    files=(
        "CIFAR-10's six binary files or their archive, for example cifar-10-binary.tar.gz, or the "
        f"folder {PYTHON} of the python version"
    ),
    schema=Schema(np.uint8, SHAPE, classes=10),
    find=find,
    read=read,
    mirrors=("https://www.cs.toronto.edu/~kriz/",),
    checksums={"cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530"},
    hub="uoft-cs/cifar10",
    read_hub=partial(read_images, column="img"),
)
