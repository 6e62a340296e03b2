"""The memory of processes that allocate and free models all the time."""

import ctypes
from contextlib import suppress

# Of glibc's malloc.h.
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4


def keep_freed_memory() -> None:
    """Make this process's malloc use freed memory again, where it would give it back to Linux.

    Otherwise every block of 32 MB and more is new memory, and Linux takes longer to give it, in
    pages of 4 kB, than a model takes to be received. The process keeps its largest size until it
    ends, or 2 GB more than it uses. Nothing happens where the C library is not glibc.
    """
    with suppress(AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(M_MMAP_MAX, 0)
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
