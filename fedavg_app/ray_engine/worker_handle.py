"""The driver's end of one worker: its Ray actor, and the connection that requests go over."""

import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from select import select
from typing import Any

import ray

from fedavg_app.ray_engine.local_connection import connect
from fedavg_app.ray_engine.pending_messages import MessageBatch, PendingMessage
from fedavg_app.ray_engine.relay import RelayedConnection
from fedavg_app.ray_engine.request_queue import Answer
from fedavg_app.ray_engine.serialization import SharedRecord, dumps, loads
from fedavg_app.ray_engine.worker import Worker, WorkerSettings

# A message, or the name and the arguments of another of the worker's methods.
Request = PendingMessage | tuple[str, tuple[Any, ...]]


class WorkerDiedError(Exception):
    """The worker's process has ended, and the states of its clients are lost."""


class WorkerHandle:
    """One worker as the driver sees it.

    Args:
        number: Its place among the workers; the one that replaces it has the same.
        settings: What the worker is told.

    Attributes:
        queue: Messages for clients whose state it keeps, not sent yet.
        unanswered: What it was sent and has not answered yet, the oldest first.
        process_id: Its process, once it is ready.
        last_activity: When it was last sent something, or answered, on the monotonic clock.
        return_requested: Whether it was asked to return the message sent last.
    """

    def __init__(self, number: int, settings: WorkerSettings) -> None:
        self.number = number
        self.queue: deque[PendingMessage] = deque()
        self.unanswered: deque[Request] = deque()
        actor: Any = ray.remote(Worker).options(num_cpus=1, num_gpus=settings.gpu_share)
        self._actor: Any = actor.remote(settings)
        self._key = settings.key
        self._batch: MessageBatch | None = None
        self._connection: Connection | None = None
        self.process_id = 0
        self.last_activity = 0.0
        self.return_requested = False
        here = ray.get_runtime_context().get_node_id()
        # A reference: first to where the worker listens, then to the end of its service.
        self.call = self._actor.listen.remote(here)

    @property
    def ready(self) -> bool:
        """Whether requests can be sent."""
        return self._connection is not None

    @property
    def load(self) -> int:
        """How many requests it has, sent or queued."""
        return len(self.unanswered) + len(self.queue)

    def fileno(self) -> int:
        """Return the connection's file, for `multiprocessing.connection.wait`."""
        assert self._connection is not None
        return self._connection.fileno()

    def connect(self) -> None:
        """Connect to a worker that has started.

        Raises:
            WorkerDiedError: It could not start.
        """
        try:
            self.process_id, address, relay = ray.get(self.call)
            self.call = self._actor.serve.remote()
            if relay is None:
                self._connection = connect(address, self._key)
            else:
                self._connection = RelayedConnection(relay, address, self._key)
        except (ray.exceptions.RayError, OSError, EOFError) as error:
            raise WorkerDiedError(_first_line(error)) from error

    def send_messages(self, messages: list[PendingMessage]) -> None:
        """Send messages, all of one batch.

        Raises:
            WorkerDiedError: The worker has died.
        """
        batch = messages[0].batch
        if batch.shared and batch is not self._batch:
            self._batch = batch
            self._send("share", batch.shared)
        left = batch.seconds_left(time.monotonic())
        self.unanswered += messages
        requests = [("handle", pending.message, left) for pending in messages]
        self._send("requests", requests, batch.shared)

    def request(self, name: str, *arguments: Any) -> None:
        """Send the request to call another of the worker's methods.

        Raises:
            WorkerDiedError: The worker has died.
        """
        self.unanswered.append((name, arguments))
        self._send("requests", [(name, *arguments)])

    def request_return(self) -> None:
        """Ask for the message that was sent last, if it is not begun.

        Raises:
            WorkerDiedError: The worker has died.
        """
        self.return_requested = True
        self._send("return last", None)

    def receive(self) -> list[tuple[Request, Answer]]:
        """Return what has been answered, with the answers; a returned message is in the queue.

        Raises:
            WorkerDiedError: The worker died before it could answer.
        """
        assert self._connection is not None
        try:
            if not self._connection.poll():
                return []
            name, content = loads(self._connection.recv_bytes())
        except (OSError, EOFError):
            raise WorkerDiedError(self._cause()) from None
        self.last_activity = time.monotonic()
        if name == "returned":
            self.return_requested = False
            for pending in list(self.unanswered):
                if isinstance(pending, PendingMessage) and pending.message_id == content:
                    self.unanswered.remove(pending)
                    self.queue.append(pending)
            return []
        answers: list[Answer] = content
        return [(self.unanswered.popleft(), answer) for answer in answers]

    def check_alive(self) -> None:
        """Ask Ray whether the worker is alive; a machine that vanished closes no connection.

        Raises:
            WorkerDiedError: It is not.
        """
        if ray.wait([self.call], timeout=0)[0]:
            raise WorkerDiedError(self._cause())

    def kill(self) -> None:
        """End the worker's process.

        It is told first: a worker that finds its connection closed exits by itself, which Ray would
        report as a death.
        """
        # Not if it would have to wait for a process that hangs.
        if self._connection is not None and select([], [self._connection], [], 0)[1]:
            with suppress(OSError):
                self._connection.send_bytes(dumps(("end", None)))
        ray.kill(self._actor)
        if self._connection is not None:
            self._connection.close()

    def _send(self, name: str, content: Any, shared: Sequence[SharedRecord] = ()) -> None:
        assert self._connection is not None
        self.last_activity = time.monotonic()
        try:
            self._connection.send_bytes(dumps((name, content), shared))
        except OSError:
            raise WorkerDiedError(self._cause()) from None

    def _cause(self) -> str:
        """Return why the worker's service has ended."""
        try:
            ray.get(self.call, timeout=5)
        except ray.exceptions.RayError as error:
            return _first_line(error)
        return "its connection was closed"


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
