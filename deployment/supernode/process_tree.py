"""Processes that end with their parent."""

import ctypes
import signal
import sys

_PR_SET_PDEATHSIG = 1  # from Linux's <sys/prctl.h>


def end_with_parent() -> None:
    """Have the kernel kill this process when its parent ends, even if it then runs C code.

    Does nothing on other systems than Linux, which have no such call.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
