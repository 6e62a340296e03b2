"""The process of a message: Flower's ClientApp, and its report to the executor."""

import json
import multiprocessing
import os
import sys
from multiprocessing.connection import Connection
from typing import Any

from deployment.supernode import end_with_parent, internals

# What a client reports when its reply is on its way.
REPLYING = b"replying"
# What the server is told of a client that ended without a reply.
REASON = "the client's process was killed, crashed, or was ended at its message's expiry"
# This package: a run may bring one of the same name.
OWN = __name__.partition(".")[0]


def run(reports: Connection, address: str, token: str, parent_pid: int) -> None:
    """Handle one message in this process, which was forked from the fork server, and end it.

    Args:
        reports: Tells the executor when the message was made, by the server's clock in seconds
            since 1970, and the seconds from then to its expiry; the reply to send in the client's
            place; and `REPLYING`.
        address: The SuperNode's.
        token: The task's.
        parent_pid: The executor's process.
    """
    end_with_parent()
    os.setpgid(0, 0)  # so that what the client starts is ended with it
    reset_after_fork()

    def on_message(message: Any) -> None:
        # Not as a pickle: a client runs the server's code.
        times = message.metadata.created_at, message.metadata.ttl
        reports.send_bytes(json.dumps(times).encode())
        reports.send_bytes(internals.failure_reply(message, REASON))

    internals.run_clientapp(
        address, token, parent_pid, on_message, lambda: reports.send_bytes(REPLYING)
    )


def reset_after_fork() -> None:
    """Make a forked process like a new Python, except for what is imported.

    The random generators that were seeded in the fork server get new seeds (Python reseeds its own
    at a fork): otherwise all messages would draw the same numbers. What a client starts by
    `multiprocessing` is started in the default way again. This package's modules are forgotten,
    since Python would take them in place of a run's own of these names.
    """
    import numpy as np
    import torch

    np.random.seed()  # noqa: NPY002 - the generator of those who use this one
    torch.seed()
    multiprocessing.set_start_method(None, force=True)
    for name in list(sys.modules):
        if name.partition(".")[0] == OWN:
            del sys.modules[name]
