"""Atomic replacement of files: a reader sees the old content or the new, never a part.

That holds across a power failure, too: content is on the disk before a name points to it.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the same folder, which replaces ``path`` on success.

    The content is on the disk before it is named; after `flush` of the folder the name is, too.
    """
    handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o644)  # mkstemp's 0600 would hide results from the user's group
        flush(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def flush(path: Path) -> None:
    """Return once a file's content, or a folder's list of names, is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
