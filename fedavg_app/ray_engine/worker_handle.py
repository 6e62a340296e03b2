"""The driver's end of one worker: its Ray actor, and what it was asked; and who keeps which states.

Ray is imported where an actor is: the driver trains the first rounds while another thread imports
it. `RayGrid` replaces a worker that has died; `ClientStates` has those that lose their states.
"""

import math
import re
import time
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Client, Connection, Pipe
from threading import Thread
from typing import Any

from fedavg_app.ray_engine.messages import Batch, PendingMessage, Stream
from fedavg_app.ray_engine.worker import (
    Worker,
    WorkerError,
    WorkerSettings,
    own_node,
    set_tcp_nodelay,
)

# A worker that has not come back this long after the clients' deadline hangs.
GRACE_SECONDS = 2.0


class WorkerDiedError(Exception):
    """The worker's process has ended, and the states of its clients are lost."""


@dataclass(eq=False)
class Call:
    """A request to a worker: one of its methods, with arguments, and the answer.

    Attributes:
        pending: The messages that it is to handle, if any.
        done: Whether the answer is there, or never will be since the worker has died.
    """

    name: str
    arguments: tuple[Any, ...] = ()
    pending: list[PendingMessage] = field(default_factory=list)
    answer: Any = None
    done: bool = False


class WorkerHandle:
    """One worker as the driver sees it. It is asked one thing at a time.

    Within a machine requests go by TCP on the loopback device, with which a short round takes a
    third less CPU time than by Ray calls (results/engine.md).

    Attributes:
        number: Its place among the workers; the one that replaces it has the same.
        queue: Messages for clients whose state it keeps, not sent yet.
        next_call: What it is to be asked when it is idle, before it gets messages.
        process_id: Its process; 0 while it is starting.
        call: What it was asked and has not answered yet.
        hangs_at: The deadline after which it is considered hung, on the monotonic clock.
        task_seconds: It gets clients for about this long at a time: a Ray call costs 2 ms, a
            request by TCP 0.1 ms, and the driver adds up replies while the next are made.
    """

    def __init__(self, number: int, settings: WorkerSettings) -> None:
        self.number, self.process_id, self.task_seconds = number, 0, 0.05
        self.queue: deque[PendingMessage] = deque()
        self.call: Call | None = None
        self.next_call: Call | None = None
        self.hangs_at = math.inf
        self._key = settings.key
        self._batch: Batch | None = None
        self._begin(settings)

    def _begin(self, settings: WorkerSettings) -> None:
        """Start the actor."""
        import ray

        actor: Any = ray.remote(Worker).options(num_cpus=1, num_gpus=settings.gpu_share)
        self._actor = actor.remote(settings)
        self._stream = Stream(ray_calls(self._actor))
        self.send(Call("start", (own_node(),)))

    @property
    def idle(self) -> bool:
        """Whether it has started, and has nothing to do."""
        return self.call is None

    def fileno(self) -> int:
        """Return the file that `multiprocessing.connection.wait` waits for."""
        return self._stream.fileno()

    def handle(self, pending: list[PendingMessage], states: Mapping[int, bytes]) -> None:
        """Send messages of one batch, and what the batch shares with its first ones.

        Args:
            pending: The messages.
            states: The states of their clients that the worker does not have.

        Raises:
            WorkerDiedError: The worker has died.
        """
        batch, now = pending[0].batch, time.monotonic()
        shared = batch.shared if batch is not self._batch else None
        self._batch = batch
        left = max(batch.deadline - now, 0.0)
        self.hangs_at = now + left + GRACE_SECONDS
        messages = [batch.dumps(sent.message) for sent in pending]
        self.send(Call("handle", (messages, shared, states, left), pending))

    def send(self, call: Call) -> None:
        """Send a request.

        Raises:
            WorkerDiedError: The worker has died.
        """
        self.call = call
        if call is self.next_call:
            self.next_call = None
        try:
            self._stream.send((call.name, call.arguments))
        except OSError:
            raise self._death() from None

    def receive(self) -> Call:
        """Return the request with its answer, which has come.

        Raises:
            WorkerDiedError: The worker has died.
        """
        try:
            answer = self._stream.receive()
            if not self.process_id:
                if isinstance(answer, WorkerError):
                    raise WorkerDiedError(answer.reason)
                if answer.address is not None:
                    self._actor.serve.remote()
                    self._stream.close()
                    connection = Client(answer.address, authkey=self._key)
                    set_tcp_nodelay(connection)
                    self._stream = Stream(connection)
                    self.task_seconds = 0.003
                self.process_id = answer.process_id
        except (OSError, EOFError):
            raise self._death() from None
        call, self.call, self.hangs_at = self.call, None, math.inf
        assert call is not None
        call.answer, call.done = answer, True
        return call

    def kill(self) -> None:
        """End the worker's process."""
        import ray

        ray.kill(self._actor)
        self._stream.close()

    def _death(self) -> WorkerDiedError:
        """Return why the worker closed its connection."""
        import ray

        try:
            ray.get(self._actor.__ray_ready__.remote(), timeout=5)
        except ray.exceptions.RayError as error:
            return WorkerDiedError(plain_reason(error))
        return WorkerDiedError("its connection was closed")


class DriverWorker(WorkerHandle):
    """A worker that is a thread of this process, for the rounds until Ray's have started.

    A client that crashes its process ends the run there.
    """

    def _begin(self, settings: WorkerSettings) -> None:
        ours, theirs = Pipe()
        self._stream, self.task_seconds = Stream(ours), 0.003

        def work() -> None:
            with suppress(EOFError, OSError):
                Worker(settings).answer_all(theirs)

        Thread(target=work, daemon=True).start()
        self.send(Call("start", (None,)))

    def kill(self) -> None:
        """End the thread, once it has handled its client."""
        self._stream.close()

    def _death(self) -> WorkerDiedError:
        return WorkerDiedError("its thread ended")


class ClientStates:
    """Where the clients' states are: with a worker, or on the way to one; lost if that dies.

    Attributes:
        owner: By client, the worker that keeps its state, or handles its message.
        parked: By client, the states that go to a worker with the client's next message, pickled.
    """

    def __init__(self) -> None:
        self.owner: dict[int, WorkerHandle] = {}
        self.parked: dict[int, bytes] = {}
        self._stateful: set[int] = set()  # the clients that have a state
        self._lost: set[int] = set()  # of these, since `take_lost`

    def restore(self, states: Mapping[int, bytes]) -> None:
        """Give clients these states, which they had when they were saved."""
        self.parked |= states
        self._stateful |= states.keys()

    def park(self, worker: WorkerHandle, states: Mapping[int, bytes]) -> None:
        """Take over the states that a worker kept, which is to end."""
        self.parked |= states
        self.owner = {client: owner for client, owner in self.owner.items() if owner is not worker}

    def unpark(self, clients: Iterable[int]) -> dict[int, bytes]:
        """Remove and return the parked states of these clients."""
        return {client: self.parked.pop(client) for client in clients if client in self.parked}

    def note_handled(self, client: int, *, has_state: bool) -> None:
        """Record whether a client has a state after its message; without one any worker will do."""
        if has_state:
            self._stateful.add(client)
        else:
            self._stateful.discard(client)
            self.owner.pop(client, None)

    def lose(self, worker: WorkerHandle) -> list[int]:
        """Forget what a worker that has died kept; return the clients that lose their states."""
        owned = {client for client, owner in self.owner.items() if owner is worker}
        lost = owned & self._stateful
        self.owner = {client: self.owner[client] for client in self.owner.keys() - owned}
        self._stateful -= lost
        self._lost |= lost
        return sorted(lost)

    def take_lost(self) -> list[int]:
        """Return the clients that have lost their states since the last call, rising."""
        lost, self._lost = sorted(self._lost), set()
        return lost


def ray_calls(actor: Any) -> "Connection[Any, Any]":
    """Return a connection whose requests a thread makes as calls of the actor's ``answer``."""
    ours, theirs = Pipe()

    import ray

    def forward() -> None:
        stream = Stream(theirs)
        with closing(stream), suppress(EOFError, OSError, ray.exceptions.RayError):
            while True:
                stream.send(ray.get(actor.answer.remote(*stream.receive())))

    Thread(target=forward, daemon=True).start()
    return ours


def plain_reason(error: Exception) -> str:
    """Return why a worker's process ended, in one line and without Ray's markup."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip()
    if getattr(error, "actor_init_failed", False):
        return f"it could not start: {text.splitlines()[-1].strip()}"
    if status := re.search(r"exit code (\d+)", text):
        return f"its process ended with exit status {status[1]}"
    if "running low on memory" in text:
        return "Ray ended its process, since the machine was out of memory"
    lost = "node has died" in text
    return "its Ray node was lost" if lost else "its process crashed or was killed"
