"""Where CIFAR-10 comes from, and its two canonical forms: the binary and the python version."""

import io
import pickle
import tarfile
import zlib
from collections.abc import Iterator
from functools import partial
from lzma import LZMAError
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks.data.dataset import DataError, Split
from tasks.data.hub import read_images
from tasks.data.npz_archive import Schema
from tasks.data.sources import Sources, Splits

SHAPE = (3, 32, 32)
RECORD = 1 + 3 * 32 * 32  # the binary version: a label, then the pixels
# The folders of the two distributions and the files in them; the last file is the test set.
BATCHES = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
DISTRIBUTIONS = {
    "cifar-10-batches-bin": [f"{name}.bin" for name in BATCHES],
    "cifar-10-batches-py": BATCHES,
}
ARCHIVES = ("cifar-10-binary.tar*", "cifar-10-python.tar*")
# What the python version's pickles are made of; any other global in one is refused.
ALLOWED_GLOBALS = {
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}


def find(folder: Path) -> list[Path]:
    """Return the six files of one version, or the one archive that holds them.

    Raises:
        DataError: Neither is there, or some of the six are not.
    """
    for distribution, names in DISTRIBUTIONS.items():
        for place in (folder / distribution, folder):
            paths = [place / name for name in names]
            missing = [path for path in paths if not path.is_file()]
            if len(missing) < len(paths):
                if missing:
                    raise DataError(f"{missing[0]} is missing; put all of {', '.join(names)} there")
                return paths
    for pattern in ARCHIVES:
        if archives := sorted(folder.glob(pattern)):
            return archives[:1]
    raise DataError(f"data-dir = {str(folder)!r} has no CIFAR-10; {CIFAR10.ways()}")


def read(paths: list[Path]) -> Splits:
    """Read what `find` returns into (train, test): inputs uint8 (n, 3, 32, 32), targets 0-9.

    Raises:
        DataError: A file is corrupt or truncated.
    """
    packed = len(paths) == 1
    contents = _archived(paths[0]) if packed else ((str(p), p.read_bytes()) for p in paths)
    parts = [_parse(name, content) for name, content in contents]
    if len(parts) != len(BATCHES):
        raise DataError(f"{paths[0]} has {len(parts)} batches, not {len(BATCHES)}; fetch it again")
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
                if file is not None and any(name in names for names in DISTRIBUTIONS.values()):
                    contents[name] = file.read()
        chosen = next((n for n in DISTRIBUTIONS.values() if contents.keys() >= set(n)), [])
        yield from ((f"{path}:{name}", contents[name]) for name in chosen)
    except (OSError, EOFError, tarfile.TarError, zlib.error, LZMAError) as error:
        raise DataError(f"{path} is corrupt or truncated ({error}); fetch it again") from error


def _parse(name: str, content: bytes) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the images and labels of one file."""
    pixels, labels = (_binary if name.endswith(".bin") else _python)(name, content)
    if len(labels) == 0 or labels.max() > 9:
        raise DataError(f"{name} is corrupt (a label that is not 0 to 9); fetch it again")
    return pixels.reshape(-1, *SHAPE), labels


def _binary(name: str, content: bytes) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    if not content or len(content) % RECORD:
        raise DataError(
            f"{name} is truncated ({len(content)} bytes, not images of {RECORD}); fetch it again"
        )
    records = np.frombuffer(content, dtype=np.uint8).reshape(-1, RECORD)
    return records[:, 1:], records[:, 0].astype(np.int64)


def _python(name: str, content: bytes) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    try:
        batch = _RestrictedUnpickler(io.BytesIO(content), encoding="bytes").load()
        pixels = np.asarray(batch[b"data"], dtype=np.uint8)
        labels = np.asarray(batch[b"labels"], dtype=np.int64)
        if pixels.shape != (len(labels), RECORD - 1) or (labels < 0).any():
            raise ValueError("images and labels do not match")
    except Exception as error:  # a damaged pickle can raise anything
        raise DataError(f"{name} is corrupt or truncated ({error}); fetch it again") from error
    return pixels, labels


class _RestrictedUnpickler(pickle.Unpickler):
    """Loads dictionaries, lists, numbers and arrays only: a downloaded pickle must not run code."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED_GLOBALS:
            raise pickle.UnpicklingError(f"{module}.{name} is not allowed")
        return super().find_class(module, name)


CIFAR10 = Sources(
    name="cifar10",
    label="CIFAR-10",
    content="50,000 + 10,000 images",
    files=(
        "CIFAR-10's six files (the binary or the python version) or its archive, for example "
        "cifar-10-binary.tar.gz"
    ),
    schema=Schema(np.uint8, SHAPE, classes=10),
    find=find,
    read=read,
    mirrors=("https://www.cs.toronto.edu/~kriz/",),
    checksums={"cifar-10-python.tar.gz": "c58f30108f718f92721af3b95e74349a"},
    hub="uoft-cs/cifar10",
    read_hub=partial(read_images, column="img"),
)
