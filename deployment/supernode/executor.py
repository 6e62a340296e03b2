"""A SuperExec whose executor forks its clients, and ends them when their message expires.

    python -m deployment.supernode.executor HOST:PORT PARENT

`deployment.supernode` starts it, and writes the secret that both share to its standard input.
"""

import json
import logging
import multiprocessing
import os
import signal
import sys
import time
from multiprocessing.connection import Connection, wait
from typing import Any

from deployment.supernode import client_main, end_with_parent, internals
from deployment.supernode.client_main import REPLYING

# The most seconds that the SuperExec's loop waits for a client, before it looks at the clock.
CLIENT_WAIT = 1.0
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


class ForkingExecutor:
    """Starts each client by a fork of a process that has the libraries imported.

    It has the methods of Flower's `Executor`, which the SuperExec calls from one thread:
    `reconcile` before every look for a task. One client runs at a time: otherwise the next client
    would be given the state before the previous client has handed in its own. Tasks of other types
    than ClientApps are not taken.
    """

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["deployment.supernode.preload"])
        self._client: RunningClient | None = None
        self._last_client = time.monotonic()

    def warm_up(self) -> None:
        """Start the fork server; return once it has imported the libraries and forks."""
        probe = self._context.Process(target=os.getpid)
        probe.start()
        probe.join()

    def get_eligible_capacity(self, *_: Any, **__: Any) -> tuple[set[Any], set[str]]:
        """Return the types of task that can be started now."""
        # Not with this module, which every client imports.
        from flwr.supercore.constant import TaskType

        return ({TaskType.CLIENT_APP} if self._client is None else set()), set()

    def wait_for_capacity(self, *_: Any, **__: Any) -> None:
        """Wait until a task can be started."""
        while self._client is not None:
            self.reconcile()

    def launch(self, spec: Any) -> Any:
        """Start the process of a task."""
        from flwr.supercore.superexec.executor import LaunchResult

        self.wait_for_capacity()
        self._client = RunningClient(self._context, spec.runtime_api_address, spec.token)
        return LaunchResult.accepted()

    def reconcile(self) -> None:
        """Wait for the client, end it if its message has expired, forget it once it has ended.

        Without a client it waits before the next look for a task.
        """
        if self._client is None:
            longest = internals.FLOWER_TASK_POLL - internals.TASK_POLL
            time.sleep(internals.pause(self._last_client, 0, longest))
        elif self._client.over(CLIENT_WAIT):
            self._client, self._last_client = None, time.monotonic()

    def close(self) -> None:
        """End the client that runs."""
        if self._client is not None:
            self._client.kill()
            self._client = None


def main() -> None:
    """Run the SuperExec until its SuperNode ends."""
    address, parent = sys.argv[1:]
    end_with_parent()
    if os.getppid() != int(parent):  # it has ended before
        return
    secret = sys.stdin.buffer.read()
    executor = ForkingExecutor()
    executor.warm_up()
    internals.run_superexec(executor, address, secret, int(parent))


if __name__ == "__main__":
    main()
