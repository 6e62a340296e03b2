"""A SuperNode whose clients start warm: see docs/deployment.md and deployment/supernode.sh.

    python -m deployment.supernode OPTION-OF-FLOWER-SUPERNODE...

Flower starts a new Python for every message, and each imports torch. Here a process that has it
already, the fork server, is forked for every message: still a process of its own, which ends with
its message. The processes of a device, each started by the one before:

* the SuperNode (`__main__`), Flower's, whose loop (`message_loop`) starts a client for a message;
* the fork server (`preload`), started by `multiprocessing`;
* the client of the message in progress (`client_main`), Flower's own `run_clientapp`.

Each ends when the one before it ends, however that ends. None of this is in what `flwr run` packs:
it belongs to the device.
"""

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
