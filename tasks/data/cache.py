"""The cache of parsed data sets: memory-mapped arrays that all processes of a machine share."""

import hashlib
import inspect
import os
import stat
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs
from numpy.typing import NDArray

from tasks.data.atomic_file import replacing
from tasks.data.dataset import DataError, DataOptions, Dataset, Split, Splits, reading

CACHE_VARIABLE = "FEDAVG_APP_CACHE"
PARTS = ("inputs", "targets", "owners")


def cache_root() -> Path:
    """Return the cache directory: $FEDAVG_APP_CACHE or the platform's usual place."""
    configured = os.environ.get(CACHE_VARIABLE)
    return Path(configured) if configured else platformdirs.user_cache_path("fedavg-app")


def cached_file(name: str, parse: Callable[..., Any], version: int = 1) -> Path:
    """Return where what ``parse`` returns is, or would be; the arguments as for `load_cached`."""
    content = _file_of(parse).read_bytes()
    return (
        cache_root() / f"{name}-v{version}-{hashlib.sha256(content).hexdigest()[:12]}.safetensors"
    )


def load_cached(
    name: str,
    parse: Callable[[], Splits],
    options: DataOptions,
    description: str,
    version: int = 1,
) -> Dataset:
    """Return the data set from the cache, memory-mapped; parse it first where it is not there.

    The cache goes by the name, the version and the SHA-256 of the file that defines ``parse``: an
    edit of that file parses again. Several processes may do so at once: each writes a file of its
    own, and renames it.

    Args:
        name: The data set's path in the cache. What ``parse`` reads or is given belongs to it: the
            files (`files_key`), the arguments of a `functools.partial`, the attributes of a
            method's object, the variables that a lambda takes from around it. If the options are
            for a device's own data, its folder is for those data only.
        parse: Returns the training and the test set: a function, a method, a partial or a lambda.
        options: See `Dataset`.
        description: See `Dataset`.
        version: To be raised when ``parse`` returns something else although its file is the same,
            as when a helper in another file has changed.

    Raises:
        DataError: What ``parse`` raises, or it is defined in no file, or the cache cannot be used
            or is damaged.
    """
    path = cached_file(name, parse, version)
    with using_cache(path):
        found = path.is_file()
    if not found:
        splits = parse()
        with using_cache(path):
            _write(path, *splits, private=options.own)
    with reading(f"the data cache {path}", "delete it and run again"):
        return _read(path, options, description)


def using_cache(path: Path) -> AbstractContextManager[None]:
    """Return what turns an error of writing into the cache into a `DataError` with its fix."""
    return reading(f"the data cache {path}", f"set ${CACHE_VARIABLE} to a writable directory")


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


def _file_of(parse: Callable[..., Any]) -> Path:
    """Return the file that defines a function: of a partial or a decorated one, the innermost."""
    parse = inspect.unwrap(parse.func if isinstance(parse, partial) else parse)
    try:
        file = inspect.getfile(parse if inspect.isroutine(parse) else type(parse))
    except TypeError:  # a function that is written in C
        file = ""
    if not Path(file).is_file():
        name = getattr(parse, "__name__", repr(parse))
        text = f"load_cached goes by the file that defines {name}, and there is none"
        raise DataError(f"{text}: give a function of a module")
    return Path(file)


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
