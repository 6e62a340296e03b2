"""The driver's end of one worker: its Ray actor, and the connection that requests go over."""

import time
from collections import deque
from collections.abc import Sequence
from multiprocessing.connection import Client, Connection
from typing import Any

import ray
from flwr.app import ArrayRecord

from fedavg_app.engine.inbox import Answer
from fedavg_app.engine.jobs import Batch, Job
from fedavg_app.engine.parcel import at_once, pack, unpack
from fedavg_app.engine.worker import Setting, Worker

Request = Job | tuple[str, tuple[Any, ...]]


class WorkerDiedError(Exception):
    """The worker's process has ended, and with it what its clients remember."""


class Link:
    """One worker as the driver sees it.

    Args:
        number: Its place among the workers; the one that replaces it has the same.
        setting: What the worker is told.

    Attributes:
        queue: Jobs for clients whose state it has, not sent yet.
        waiting: What it was sent and has not answered yet, the oldest first: jobs, and the names
            and arguments of other requests.
        process_id: Its process, once it is ready.
        heard: When it was last sent something, or answered, on the monotonic clock.
        asked_back: Whether it is to say if the job sent last is begun.
    """

    def __init__(self, number: int, setting: Setting) -> None:
        self.number = number
        self.queue: deque[Job] = deque()
        self.waiting: deque[Request] = deque()
        actor: Any = ray.remote(Worker).options(num_cpus=1, num_gpus=setting.gpu_share)
        self._actor: Any = actor.remote(setting)
        self._key = setting.key
        self._batch: Batch | None = None
        self._connection: Connection | None = None
        self.process_id = 0
        self.heard = 0.0
        self.asked_back = False
        here = ray.get_runtime_context().get_node_id()
        # A reference: to where the worker listens, and once it does, to the end of its service.
        self.call = self._actor.listen.remote(here)

    @property
    def ready(self) -> bool:
        """Whether requests can be sent."""
        return self._connection is not None

    def fileno(self) -> int:
        """Return the connection's file, for `multiprocessing.connection.wait`."""
        assert self._connection is not None
        return self._connection.fileno()

    def connect(self) -> None:
        """Connect to a worker that has started.

        Raises:
            WorkerDiedError: It has not.
        """
        try:
            self.process_id, address = ray.get(self.call)
            self.call = self._actor.serve.remote()
            self._connection = Client(address, authkey=self._key)
            at_once(self._connection)
        except (ray.exceptions.RayError, OSError, EOFError) as error:
            raise WorkerDiedError(_first_line(error)) from error

    def hand(self, jobs: list[Job]) -> None:
        """Send jobs, all of one batch.

        Raises:
            WorkerDiedError: It is not there any more.
        """
        batch = jobs[0].batch
        if batch.shared and batch is not self._batch:
            self._batch = batch
            self._send("share", batch.shared)
        left = batch.seconds_left(time.monotonic())
        self.waiting += jobs
        requests = [("handle", job.message, left) for job in jobs]
        self._send("requests", requests, batch.shared)

    def ask(self, name: str, *arguments: Any) -> None:
        """Send the request to call another of the worker's methods.

        Raises:
            WorkerDiedError: It is not there any more.
        """
        self.waiting.append((name, arguments))
        self._send("requests", [(name, *arguments)])

    def ask_back(self) -> None:
        """Ask for the job that was sent last, if it is not begun.

        Raises:
            WorkerDiedError: It is not there any more.
        """
        self.asked_back = True
        self._send("give back", None)

    def answers(self) -> list[tuple[Request, Answer]]:
        """Return what was answered since, with the answers; a job given back is in the queue.

        Raises:
            WorkerDiedError: It has died before it could answer.
        """
        assert self._connection is not None
        try:
            if not self._connection.poll():
                return []
            name, content = unpack(self._connection.recv_bytes())
        except (OSError, EOFError):
            raise WorkerDiedError(self._cause()) from None
        self.heard = time.monotonic()
        if name == "given back":
            self.asked_back = False
            for job in list(self.waiting):
                if isinstance(job, Job) and job.message_id == content:
                    self.waiting.remove(job)
                    self.queue.append(job)
            return []
        answers: list[Answer] = content
        return [(self.waiting.popleft(), answer) for answer in answers]

    def check(self) -> None:
        """Ask Ray whether the worker is alive; a machine that vanished closes no connection.

        Raises:
            WorkerDiedError: It is not.
        """
        if ray.wait([self.call], timeout=0)[0]:
            raise WorkerDiedError(self._cause())

    def kill(self) -> None:
        """End the worker's process."""
        if self._connection is not None:
            self._connection.close()
        ray.kill(self._actor)

    def _send(self, name: str, content: Any, shared: Sequence[ArrayRecord] = ()) -> None:
        assert self._connection is not None
        self.heard = time.monotonic()
        try:
            self._connection.send_bytes(pack((name, content), shared))
        except OSError:
            raise WorkerDiedError(self._cause()) from None

    def _cause(self) -> str:
        """Return why the worker's service has ended."""
        try:
            ray.get(self.call, timeout=5)
        except ray.exceptions.RayError as error:
            return _first_line(error)
        return "it hung up"


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
