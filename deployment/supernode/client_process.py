"""Starts the process of a message by a fork of one that has torch imported, and ends it in time."""

import logging
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from typing import Any

from deployment.supernode import client_main

# Seconds between looks for whether a client has handed in what it had to.
POLL = 0.05
# The most by which a device's clock may be ahead of the server's, in seconds; Flower refuses more.
CLOCK_AHEAD = 10.0

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["deployment.supernode.preload"])
_log = logging.getLogger("flwr")


class Client:
    """The process of one message.

    Args:
        address: The SuperNode's, on the loopback device.
        token: The task's.
        metadata: The message's.
        states: The files of the client's state, before this message and after it.

    Attributes:
        reply: The ids of its reply's objects, once the reply is on its way.
    """

    def __init__(self, address: str, token: str, metadata: Any, states: list[str]) -> None:
        self.reply: list[str] | None = None
        self._deadline = deadline(metadata.created_at, metadata.ttl, time.monotonic())
        arguments = address, token, os.getpid(), states
        self._process = _CONTEXT.Process(target=client_main.run, args=arguments)
        self._process.start()

    def wait(self, is_over: Callable[[], bool]) -> None:
        """Wait until the task is over, or the process has ended; end it if its message expires."""
        while self._process.is_alive() and not is_over():
            self._process.join(POLL)
            if self.reply is None and time.monotonic() > self._deadline:
                self.kill("its message has expired")

    def end(self) -> None:
        """Wait until the process has ended; end it if its message expires."""
        self._process.join(max(self._deadline - time.monotonic(), 0))
        self.kill("its message has expired")

    def kill(self, why: str) -> None:
        """End the process if it has not ended, and those that it has started, whatever they do."""
        pid = self._process.pid
        if pid is None or not self._process.is_alive():
            return
        _log.warning("Ending process %d: %s", pid, why)
        try:
            os.killpg(pid, signal.SIGKILL)
        except ProcessLookupError:  # it has no group of its own yet
            self._process.kill()
        self._process.join()


def deadline(created_at: float, ttl: float, started: float) -> float:
    """Return when a client is to be ended, by `time.monotonic`; never before its message's expiry.

    The server's clock and this device's may differ. A message was made before its client started,
    so it expires at the latest ``ttl`` seconds after that, whatever the clocks say. A message that
    is old when its client starts expires earlier: by this device's clock, and `CLOCK_AHEAD` after.
    """
    by_clock = created_at + ttl + CLOCK_AHEAD - time.time()
    return min(started + ttl, time.monotonic() + by_clock)
