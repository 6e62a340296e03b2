"""Data sets parsed once into memory-mapped arrays that all processes of a machine share."""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import platformdirs
from numpy.typing import NDArray

CACHE_VARIABLE = "FEDAVG_APP_CACHE"
META = "meta.json"
PARTS = ("inputs", "targets", "owners")


class DataError(ValueError):
    """A data set cannot be had; the message says what is wrong and what to do, in one line."""


@dataclass(frozen=True)
class DataOptions:
    """Where to look for a data set.

    Attributes:
        source: "mirror", "hub", "embedded" or "auto"; "auto" takes the first that can be had of
            cache, system package, mirror and embedded default.
        directory: A directory of the data set's canonical files; if set, nothing else is used.
        own: The directory holds one device's own examples: it may be archives instead of canonical
            files, and there may be nothing to test on.
    """

    source: str = "auto"
    directory: str = ""
    own: bool = False


@dataclass(frozen=True)
class Split:
    """Examples as stored.

    Attributes:
        inputs: (n, ...), as the files have them.
        targets: (n,) or, with several predictions an example, (n, ...), int64.
        owners: Who each example is from, where the data say so: (n,) int64.
    """

    inputs: NDArray[np.generic]
    targets: NDArray[np.int64]
    owners: NDArray[np.int64] | None = None

    @property
    def labels(self) -> NDArray[np.int64]:
        """What a partition goes by, (n,): the owners where there are any, else the targets."""
        return self.targets if self.owners is None else self.owners

    def __len__(self) -> int:
        return len(self.targets)


@dataclass(frozen=True)
class Dataset:
    """A training and a test set.

    Attributes:
        train: The examples that clients share out.
        test: The examples that the global model is evaluated on.
        options: What loads exactly this data set again, in this or another process.
        description: Where the data are from, for people.
        fingerprint: SHA-256 of the arrays, hexadecimal.
    """

    train: Split
    test: Split
    options: DataOptions
    description: str
    fingerprint: str


def cache_root() -> Path:
    """Return the cache directory: $FEDAVG_APP_CACHE or the platform's usual place."""
    configured = os.environ.get(CACHE_VARIABLE)
    return Path(configured) if configured else platformdirs.user_cache_path("fedavg-app")


def is_stored(name: str) -> bool:
    """Return whether the data set is in the cache, complete."""
    return (cache_root() / name / META).is_file()


def load(
    name: str,
    parse: Callable[[], tuple[Split, Split]],
    options: DataOptions,
    description: str,
) -> Dataset:
    """Return the data set ``name`` from the cache, memory-mapped; parse it first where it is new.

    Several processes may do so at once: each writes into a directory of its own, and the first to
    rename it into place wins.

    Raises:
        DataError: What ``parse`` raises, or the cache cannot be written or is damaged.
    """
    folder = cache_root() / name
    if not is_stored(name):
        train, test = parse()
        with writing(folder):
            _write(folder, train, test)
    try:
        fingerprint = json.loads((folder / META).read_text())["fingerprint"]
        # Copy on write: processes share the pages, and torch takes arrays that can be written to.
        train, test = (
            Split(
                *(
                    np.load(path, mmap_mode="c")
                    for part in PARTS
                    if (path := folder / f"{split}-{part}.npy").exists() or part != "owners"
                )
            )
            for split in ("train", "test")
        )
    except (OSError, EOFError, ValueError, KeyError) as error:  # a full disk, a power loss
        raise DataError(f"the data cache {folder} is damaged; delete it and run again") from error
    return Dataset(train, test, options, description, fingerprint)


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Turn an error of writing ``folder`` into a `DataError` that says what to do."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"cannot write the data cache {folder}: {error.strerror or error}; "
            f"set ${CACHE_VARIABLE} to a writable directory"
        ) from error


def _write(folder: Path, train: Split, test: Split) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        digest = hashlib.sha256()
        for name, split in (("train", train), ("test", test)):
            for part in PARTS:
                if getattr(split, part) is None:
                    continue
                array = np.ascontiguousarray(getattr(split, part))
                digest.update(f"{array.dtype}{array.shape}".encode())
                digest.update(array.tobytes())
                np.save(temporary / f"{name}-{part}.npy", array)
        (temporary / META).write_text(json.dumps({"fingerprint": digest.hexdigest()}))
        try:
            temporary.rename(folder)
        except OSError:
            if not (folder / META).is_file():  # not another process's finished work
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
