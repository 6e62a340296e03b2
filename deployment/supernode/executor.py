"""A SuperExec whose executor forks its clients (`running_client` ends them in time).

    python -m deployment.supernode.executor HOST:PORT PARENT

`deployment.supernode` starts it, and writes the secret that both share to its standard input.
"""

import multiprocessing
import os
import sys
import time
from typing import Any

from deployment.supernode import end_with_parent, internals
from deployment.supernode.running_client import RunningClient

# The most seconds that the SuperExec's loop waits for a client, before it looks at the clock.
CLIENT_WAIT = 1.0


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
        self._pace = internals.Pace(0, internals.FLOWERS_TASK_POLL - internals.TASK_POLL)

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
            time.sleep(self._pace.wait())
        elif self._client.over(CLIENT_WAIT):
            self._client = None
            self._pace.came()

    def close(self) -> None:
        """End the client that runs."""
        if self._client is not None:
            self._client.kill()
            self._client = None


def main() -> None:
    """Run the SuperExec until its SuperNode ends."""
    end_with_parent()
    address, parent = sys.argv[1:]
    secret = sys.stdin.buffer.read()
    executor = ForkingExecutor()
    executor.warm_up()
    internals.run_superexec(executor, address, secret, int(parent))


if __name__ == "__main__":
    main()
