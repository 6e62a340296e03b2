"""Memory that a SuperNode no longer uses goes back to the system."""

import ctypes
import gc
import time
from typing import NoReturn

# Seconds until a SuperNode has imported what it needs, and then between two returns of its memory.
STARTING, RETURNING = 10.0, 0.25


def return_memory() -> NoReturn:
    """Return the memory that this process no longer uses to the system, again and again.

    Flower's requests end in reference cycles, which Python frees once it has made many other
    objects, for which an idle SuperNode takes hours. Each message and its reply are in several.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", lambda _: None)  # glibc's
    time.sleep(STARTING)
    gc.collect()
    gc.freeze()  # what there is by now: it takes 0.1 s to look through, the rest 1 ms
    while True:
        gc.collect()
        trim(0)
        time.sleep(RETURNING)
