"""The cache of parsed data sets: memory-mapped arrays that all processes of a machine share."""

import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs
from numpy.typing import NDArray

from tasks.data.atomic_file import replacing
from tasks.data.dataset import DataError, DataOptions, Dataset, Split, Splits, reading
from tasks.data.source_digest import source_digest

CACHE_VARIABLE = "FEDAVG_APP_CACHE"
PARTS = ("inputs", "targets", "owners")


def cache_root() -> Path:
    """Return the cache directory: $FEDAVG_APP_CACHE or the platform's usual place."""
    configured = os.environ.get(CACHE_VARIABLE)
    return Path(configured) if configured else platformdirs.user_cache_path("fedavg-app")


def cached_file(name: str) -> Path:
    """Return where the data set of that name is, or would be."""
    return cache_root() / f"{name}.safetensors"


def load_cached(
    name: str,
    parse: Callable[[], Splits],
    options: DataOptions,
    description: str,
    *,
    versioned: bool = False,
) -> Dataset:
    """Return the data set from the cache, memory-mapped; parse it first where it is not there.

    Several processes may do so at once: each writes a file of its own, and renames it.

    Args:
        name: The data set's path in the cache, to which a digest of the source of ``parse`` is
            added. It must change with the files that are parsed (`files_key`); if the options are
            for a device's own data, its folder is for those data only.
        parse: Returns the training and the test set.
        options: See `Dataset`.
        description: See `Dataset`.
        versioned: The name changes by itself whenever ``parse`` returns something else; no digest
            is added.

    Raises:
        DataError: What ``parse`` raises, or the cache cannot be used or is damaged.
    """
    path = cached_file(name if versioned else f"{name}-{source_digest(parse)}")
    with reporting_write_errors(path):
        found = path.is_file()
    if not found:
        splits = parse()
        with reporting_write_errors(path):
            _write(path, *splits, private=options.own)
    with reading(f"the data cache {path}", "delete it and run again"):
        return _read(path, options, description)


def files_key(paths: Iterable[Path]) -> str:
    """Return a key of files, and of those in folders, as they are now, for a name in the cache.

    It changes whenever a file is added, removed or written. On a SuperNode every message asks for
    it in a new process, so contents are not read.
    """
    total = hashlib.sha256()
    for path in paths:
        status = path.stat()
        state = (str(path.resolve()), status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        total.update(repr(state).encode())
        if stat.S_ISDIR(status.st_mode):
            total.update(files_key(sorted(path.iterdir())).encode())
    return total.hexdigest()[:16]


@contextmanager
def reporting_write_errors(path: Path) -> Iterator[None]:
    """Turn an error of using the cache into a `DataError` that says what to do."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"cannot write the data cache {path}: {error.strerror or error}; "
            f"set ${CACHE_VARIABLE} to a writable directory"
        ) from error


def _read(path: Path, options: DataOptions, description: str) -> Dataset:
    from safetensors import safe_open

    # Through torch, which maps the file copy on write: processes share the pages.
    with safe_open(path, framework="pt") as file:  # type: ignore[no-untyped-call, unused-ignore]
        arrays = {name: file.get_tensor(name).numpy() for name in file.keys()}  # noqa: SIM118
        fingerprint = file.metadata()["fingerprint"]
    train, test = (
        Split(*(_part(arrays, f"{name}-{part}") for part in PARTS)) for name in ("train", "test")
    )
    return Dataset(train, test, options, description, fingerprint)


def _part(arrays: Mapping[str, NDArray[Any]], name: str) -> Any:
    """Return an array, or those whose names begin with the name and a dot; None for none."""
    prefix = f"{name}."
    several = {
        key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)
    }
    return arrays.get(name, several or None)


def _write(path: Path, train: Split, test: Split, *, private: bool) -> None:
    """Write the data set; a device's own is private, and replaces the one before it."""
    from safetensors.numpy import save_file

    arrays = {}
    for name, split in (("train", train), ("test", test)):
        for part in PARTS:
            stored = getattr(split, part)
            several = stored if isinstance(stored, Mapping) else {"": stored}
            for key, array in several.items():
                if array is not None:
                    arrays[f"{name}-{part}" + f".{key}" * bool(key)] = np.ascontiguousarray(array)
    digest = hashlib.sha256()
    for array in arrays.values():
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(array.tobytes())
    path.parent.mkdir(mode=0o700 if private else 0o777, parents=True, exist_ok=True)
    with replacing(path) as temporary:
        save_file(arrays, temporary, {"fingerprint": digest.hexdigest()})
    if private:  # a device's data change with time; processes that have mapped a file keep it
        for other in path.parent.glob("[!.]*"):
            if other != path:
                other.unlink(missing_ok=True)
