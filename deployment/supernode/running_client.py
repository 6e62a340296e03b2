"""A client's process on a device: ended at its message's expiry, and reported if it fails."""

import json
import logging
import os
import signal
import time
from multiprocessing.connection import Connection, wait
from typing import Any

from deployment.supernode import client_main, internals
from deployment.supernode.client_main import REPLYING

# The most by which a device's clock may be ahead of the server's, in seconds; Flower refuses more.
CLOCK_AHEAD = 10.0

_log = logging.getLogger("flwr")


class RunningClient:
    """The process of one message.

    Args:
        context: Starts it.
        address: The SuperNode's.
        token: The task's.
    """

    def __init__(self, context: Any, address: str, token: str) -> None:
        self._address, self._token = address, token
        self._reports: Connection
        self._reports, theirs = context.Pipe(duplex=False)
        self._started = time.monotonic()
        self._deadline = float("inf")
        self._failure: bytes | None = None
        self._replying = False
        self._process = context.Process(
            target=client_main.run, args=(theirs, address, token, os.getpid())
        )
        self._process.start()
        theirs.close()

    def over(self, seconds: float) -> bool:
        """Return whether it has ended; end it if its message has expired.

        Args:
            seconds: How long to wait for its end or a report.
        """
        wait([self._reports, self._process.sentinel], seconds)
        self._read_reports()
        if self._process.is_alive():
            # A reply on its way may arrive: the SuperNode waits for the rest of a reply that it
            # has begun to receive.
            if self._replying or time.monotonic() < self._deadline:
                return False
            _log.warning("Ending process %d: its message has expired", self._process.pid)
            self.kill()
        self._process.join()
        self._read_reports()
        self._reports.close()
        if self._failure is not None and not self._replying:
            self._reply(self._failure)
        return True

    def kill(self) -> None:
        """End the process, and those that it has started, whatever they do."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:  # it has no group of its own yet, or is over
            self._process.kill()
        self._process.join()

    def _read_reports(self) -> None:
        try:
            while self._reports.poll():
                report = self._reports.recv_bytes()
                if report == REPLYING:
                    self._replying = True
                else:
                    created_at, ttl = json.loads(report)
                    self._deadline = deadline(created_at, ttl, self._started)
                    self._failure = self._reports.recv_bytes()
        except (EOFError, OSError):  # it has ended
            return

    def _reply(self, reply: bytes) -> None:
        """Reply in the client's place; without this the SuperNode waits a minute."""
        try:
            internals.send_failure(self._address, self._token, reply)
        except Exception as error:  # the task is over already, or the SuperNode is
            _log.warning("Could not report a client that ended without a reply: %s", error)


def deadline(created_at: float, ttl: float, started: float) -> float:
    """Return when a client is to be ended, by `time.monotonic`; never before its message's expiry.

    The server's clock and this device's may differ. A message was made before its client started,
    so it expires at the latest ``ttl`` seconds after that, whatever the clocks say. A message that
    is old when its client starts expires earlier: by this device's clock, and `CLOCK_AHEAD` after.
    """
    by_clock = created_at + ttl + CLOCK_AHEAD - time.time()
    return min(started + ttl, time.monotonic() + by_clock)
