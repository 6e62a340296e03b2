"""The cache of parsed data sets: memory-mapped arrays that all processes of a machine share."""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import platformdirs

from tasks.data.atomic_file import flush
from tasks.data.dataset import DataError, DataOptions, Dataset, Split

CACHE_VARIABLE = "FEDAVG_APP_CACHE"
META = "meta.json"
ARRAYS = ("inputs", "targets", "owners")


def cache_root() -> Path:
    """Return the cache directory: $FEDAVG_APP_CACHE or the platform's usual place."""
    configured = os.environ.get(CACHE_VARIABLE)
    return Path(configured) if configured else platformdirs.user_cache_path("fedavg-app")


def is_cached(name: str) -> bool:
    """Return whether the data set of that name is in the cache, complete.

    Raises:
        DataError: The cache cannot be read.
    """
    return _is_complete(cache_root() / name)


def delete_others(name: str, prefix: str) -> None:
    """Delete the data sets whose names in the cache begin with the prefix, but for this one.

    Processes that have mapped the arrays of one keep them.
    """
    folder = cache_root() / name
    for other in cache_root().glob(f"{prefix}*"):
        if other != folder:
            shutil.rmtree(other, ignore_errors=True)


def load_cached(
    name: str,
    parse: Callable[[], tuple[Split, Split]],
    options: DataOptions,
    description: str,
) -> Dataset:
    """Return the data set from the cache, memory-mapped; parse it first where it is not there.

    Several processes may do so at once: each writes into a directory of its own, and the first to
    rename it into place wins.

    Args:
        name: The data set's path in the cache. It must change whenever ``parse`` returns something
            else.
        parse: Returns the training and the test set.
        options: See `Dataset`.
        description: See `Dataset`.

    Raises:
        DataError: What ``parse`` raises, or the cache cannot be written or is damaged.
    """
    folder = cache_root() / name
    for last_try in (False, True):
        if not is_cached(name):
            train, test = parse()
            with reporting_write_errors(folder):
                _write(folder, train, test, private=options.own)
        try:
            train, test, fingerprint = _read(folder)
            break
        except (OSError, EOFError, ValueError, KeyError) as error:  # a full disk, a power loss
            # Another process may have deleted or replaced it since it was looked for.
            if last_try or not isinstance(error, FileNotFoundError):
                fix = f"the data cache {folder} is damaged; delete it and run again"
                raise DataError(fix) from error
    return Dataset(train, test, options, description, fingerprint)


@contextmanager
def reporting_write_errors(folder: Path) -> Iterator[None]:
    """Turn an error of writing to the cache into a `DataError` that says what to do."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"cannot write the data cache {folder}: {error.strerror or error}; "
            f"set ${CACHE_VARIABLE} to a writable directory"
        ) from error


def _is_complete(folder: Path) -> bool:
    try:
        return (folder / META).stat().st_size > 0
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise DataError(
            f"the data cache {folder} cannot be read ({error.strerror}); set "
            f"${CACHE_VARIABLE} to a directory that you can read and write"
        ) from error


def _read(folder: Path) -> tuple[Split, Split, str]:
    """Return the training and the test set, memory-mapped, and their fingerprint."""
    fingerprint = json.loads((folder / META).read_text())["fingerprint"]
    # Copy on write: processes share the pages, and torch requires writable arrays.
    train, test = (
        Split(
            *(
                np.load(path, mmap_mode="c")
                for array in ARRAYS
                if (path := folder / f"{split}-{array}.npy").exists() or array != "owners"
            )
        )
        for split in ("train", "test")
    )
    return train, test, fingerprint


def _write(folder: Path, train: Split, test: Split, *, private: bool) -> None:
    """Write the data set, on the disk before it is named; nobody else can read a private one."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        digest = hashlib.sha256()
        for name, split in (("train", train), ("test", test)):
            for part in ARRAYS:
                if getattr(split, part) is None:
                    continue
                array = np.ascontiguousarray(getattr(split, part))
                digest.update(f"{array.dtype}{array.shape}".encode())
                digest.update(array.tobytes())
                np.save(temporary / f"{name}-{part}.npy", array)
        (temporary / META).write_text(json.dumps({"fingerprint": digest.hexdigest()}))
        for path in [*temporary.iterdir(), temporary]:
            flush(path)
        if not private:
            temporary.chmod(0o755)  # mkdtemp's 0700 would hide the data from other users
        try:
            temporary.rename(folder)
        except OSError:
            if not _is_complete(folder):  # else another process was faster
                raise
        flush(folder.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
