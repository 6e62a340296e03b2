"""The process of one message: Flower's ClientApp, and what its executor is told of it."""

import json
import multiprocessing
import os
import sys
from base64 import b64decode, b64encode
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Self

from deployment.supernode import internals
from deployment.supernode.process_tree import end_with_parent

# What a client reports when its reply is on its way.
REPLYING = b"replying"
# What the server is told of a client that ended without a reply.
REASON = "the client's process was killed, crashed, or was ended at its message's expiry"
# This package: a run may bring one of the same name.
OWN = __name__.partition(".")[0]


@dataclass(frozen=True)
class Received:
    """What a client reports about its message.

    Attributes:
        created_at: When the server made it, in seconds since 1970, by the server's clock.
        ttl: The seconds from then to its expiry.
        request: The request that replies in the client's place, if it cannot.
        content: The object that goes with it.
    """

    created_at: float
    ttl: float
    request: bytes
    content: bytes

    def to_bytes(self) -> bytes:
        """Return this as JSON: a client runs the server's code, so no pickle is taken from it."""
        encoded = [b64encode(data).decode() for data in (self.request, self.content)]
        return json.dumps([self.created_at, self.ttl, *encoded]).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Return what `to_bytes` was called on."""
        created_at, ttl, request, content = json.loads(data)
        return cls(float(created_at), float(ttl), b64decode(request), b64decode(content))


def run(reports: Connection, address: str, token: str, parent_pid: int) -> None:
    """Handle one message in this process, which was forked from the fork server, and end it.

    Args:
        reports: Where the executor hears of it.
        address: The SuperNode's.
        token: The task's.
        parent_pid: The executor's process.
    """
    end_with_parent()
    os.setpgid(0, 0)  # so that what the client starts is ended with it
    become_like_new()

    def on_message(message: Any) -> None:
        request, content = internals.failure_reply(message, REASON)
        metadata = message.metadata
        received = Received(metadata.created_at, metadata.ttl, request, content)
        reports.send_bytes(received.to_bytes())

    internals.run_clientapp(
        address, token, parent_pid, on_message, lambda: reports.send_bytes(REPLYING)
    )


def become_like_new() -> None:
    """Make a forked process what a new Python would be, but for what is imported.

    The random generators that were seeded in the fork server get seeds of their own (Python reseeds
    its own at a fork): all messages would draw the same numbers otherwise. What a client starts by
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
