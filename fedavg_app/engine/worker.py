"""One long-lived Ray actor: it runs the same ClientApp as everywhere, for the clients it is given.

Ray starts it, places it and notices its death. Requests come over a connection of its own, which
takes 0.1 ms where a Ray call takes 1 ms and more; `fedavg_app.engine.link` is its other end.
"""

import os
import signal
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Listener
from pathlib import Path
from typing import Any

import ray
import torch
from flwr.app import ArrayRecord, Context, Message, RecordDict, UserConfig

import tasks
from fedavg_app.client_app import app
from fedavg_app.config import parse_config
from fedavg_app.engine.inbox import Answer, Inbox
from fedavg_app.engine.states import ClientStates
from fedavg_app.evaluation import CentralTest
from fedavg_app.internals import FIRST_NODE_ID, error_reply
from fedavg_app.nodes import PARTITION_ID
from tasks.base import BatchResult
from tasks.data.store import DataOptions

# Answers that follow each other faster than this travel together.
FLUSH_SECONDS = 0.003


class DeadlineError(Exception):
    """A client was not done when the round's deadline came."""


@dataclass(frozen=True)
class Setting:
    """What every worker of a run is told.

    Attributes:
        run_id: The run's number.
        run_config: The run config that clients see.
        num_clients: K.
        state_memory: Bytes of clients' states that the worker keeps in memory.
        gpu_share: The share of a GPU that it has; it may use that share of its memory.
        folder: Where files of its own go, if it is on the driver's machine.
        key: Who knows it may connect.
    """

    run_id: int
    run_config: UserConfig
    num_clients: int
    state_memory: int
    gpu_share: float
    folder: str
    key: bytes


class Worker:
    """Answers requests one after the other, and keeps the states of clients between them."""

    def __init__(self, setting: Setting) -> None:
        torch.set_num_threads(1)
        if setting.gpu_share and torch.cuda.is_available():
            torch.cuda.set_per_process_memory_fraction(min(setting.gpu_share, 1.0))
        self._setting = setting
        # The driver deletes its folder also where this process has no more chance to.
        parent = setting.folder if Path(setting.folder).is_dir() else None
        self._folder = tempfile.TemporaryDirectory(prefix="fedavg-app-", dir=parent)
        self._states = ClientStates(setting.state_memory, Path(self._folder.name))
        self._listener: Listener | None = None
        self._test: CentralTest | None = None

    def listen(self, driver_node: str) -> tuple[int, Any]:
        """Open the door; return this process's id and where to connect."""
        here = ray.get_runtime_context().get_node_id() == driver_node
        host = "127.0.0.1" if here else ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
        self._listener = Listener((host, 0), authkey=self._setting.key)
        return os.getpid(), self._listener.address

    def serve(self) -> None:
        """Answer requests until the driver hangs up."""
        assert self._listener is not None
        with self._listener, self._listener.accept() as connection:
            inbox = Inbox(connection)
            while True:
                requests = inbox.take()
                answers: list[Answer] = []
                sent = time.monotonic()
                for received, (name, *arguments) in requests:
                    answers.append(self._answer(name, arguments, received))
                    if time.monotonic() - sent > FLUSH_SECONDS:
                        inbox.send(answers)
                        answers, sent = [], time.monotonic()
                if inbox.closed:
                    self._folder.cleanup()
                    os._exit(0)  # at once: there is nobody to answer to
                inbox.send(answers)

    def _answer(self, name: str, arguments: list[Any], received: float) -> Answer:
        """Return (True, what the method of that name returns), or (False, why it could not)."""
        try:
            if name == "handle":
                message, seconds = arguments
                return True, self.handle(message, seconds, received)
            return True, getattr(self, name)(*arguments)
        except Exception as error:
            return False, "".join(traceback.format_exception_only(error)).strip()

    def adopt(self, partition: int, state: RecordDict) -> None:
        """Take the state of a client that was another worker's."""
        self._states.put(partition, state)

    def release(self, partition: int) -> RecordDict:
        """Return a client's state, for the worker that is to have it, and forget it."""
        return self._states.take(partition)

    def pickled(self, partition: int) -> bytes:
        """Return a client's state, pickled, and keep it."""
        return self._states.pickled(partition)

    def handle(
        self, message: Message, seconds: float | None, received: float
    ) -> tuple[Message, bool, float]:
        """Run the ClientApp on a message.

        Args:
            message: For the client whose node it names.
            seconds: From the time it was received to the round's deadline, None for none.
            received: That time, on the monotonic clock.

        Returns:
            The reply, whether the client has a state now, and the seconds it took.
        """
        started = time.monotonic()
        partition = message.metadata.dst_node_id - FIRST_NODE_ID
        state = self._states.take(partition)
        context = Context(
            run_id=self._setting.run_id,
            node_id=message.metadata.dst_node_id,
            node_config={PARTITION_ID: partition, "num-partitions": self._setting.num_clients},
            state=state.copy(),
            run_config=self._setting.run_config,
        )
        try:
            with _deadline(None if seconds is None else received + seconds - started):
                reply = app(message, context)
            state = context.state
        except DeadlineError as error:
            # It may have been amid changing its state, which is therefore what it was before.
            reply = error_reply(message, str(error))
        except Exception as error:
            state = context.state  # a SuperNode keeps it, too
            reason = "".join(traceback.format_exception_only(error)).strip()
            reply = error_reply(message, reason)
        self._states.put(partition, state)
        return reply, bool(state), time.monotonic() - started

    def evaluate(
        self, options: DataOptions, arrays: ArrayRecord, batches: Sequence[int]
    ) -> list[BatchResult]:
        """Test a model on some batches of the test set that the options lead to."""
        if self._test is None:
            config = parse_config(self._setting.run_config)
            task = tasks.load(config.task)
            self._test = CentralTest(task, task.dataset(options), config)
        return self._test.results(arrays, batches)


@contextmanager
def _deadline(seconds: float | None) -> Iterator[None]:
    """Raise `DeadlineError` in what runs inside once the seconds are over.

    It reaches Python code, a wait and a loop included, but no call of a library that hangs.
    """
    if seconds is None:
        yield
        return

    def expire(*_: object) -> None:
        raise DeadlineError("still at work at the round's deadline")

    if seconds <= 0:
        raise DeadlineError("not begun before the round's deadline")
    before = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
