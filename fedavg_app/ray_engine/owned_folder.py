"""Temporary folders that a later process deletes, where their own was killed."""

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

LOCK = "owner.lock"


class OwnedFolder:
    """A temporary folder, deleted by `cleanup` or, after this process has died, by the next one.

    A lock says that the owner lives: unlike a process id in the name, the system releases it when
    the process dies however it dies, and it holds across containers that share the folder.

    Args:
        prefix: What its name begins with. Folders beside it with that prefix, whose owners have
            died, are deleted first.
        parent: Where it is; None for the system's folder for temporary files.
    """

    def __init__(self, prefix: str, parent: str | None = None) -> None:
        delete_abandoned(Path(parent or tempfile.gettempdir()), prefix)
        self._folder = tempfile.TemporaryDirectory(prefix=prefix, dir=parent)
        self.name = self._folder.name
        unnamed = Path(self.name, f"{LOCK}.new")
        self._lock = unnamed.open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        # Only now: nobody finds it before it is locked.
        unnamed.rename(Path(self.name, LOCK))

    def cleanup(self) -> None:
        """Delete the folder."""
        self._folder.cleanup()
        self._lock.close()


def delete_abandoned(parent: Path, prefix: str) -> None:
    """Delete the folders of that prefix whose owners have died."""
    for lock in parent.glob(f"{prefix}*/{LOCK}"):
        try:
            handle = os.open(lock, os.O_RDWR)
        except OSError:  # another user's, or just deleted
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.parent, ignore_errors=True)
        except BlockingIOError:
            pass
        finally:
            os.close(handle)
