"""One long-lived Ray actor: it runs the same ClientApp as everywhere, for the clients it is given.

Imported by the actor's process only: the driver has no use for the ClientApp.
"""

import os
import pickle
import signal
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import ray
import torch
from flwr.app import ArrayRecord, Context, Message, UserConfig

import tasks
from fedavg_app.client_app import app
from fedavg_app.config import parse_config
from fedavg_app.engine.parcel import pack, unpack
from fedavg_app.engine.states import ClientStates
from fedavg_app.evaluation import CentralTest
from fedavg_app.internals import FIRST_NODE_ID, error_reply
from fedavg_app.nodes import PARTITION_ID
from tasks.base import BatchResult
from tasks.data.store import DataOptions


class DeadlineError(Exception):
    """A client was still at work when the round's deadline came."""


@dataclass(frozen=True)
class Setting:
    """What every worker of a run is told.

    Attributes:
        run_id: The run's number.
        run_config: The run config that clients see.
        num_clients: K.
        state_memory: Bytes of clients' states that the worker keeps in memory.
        gpu_share: The share of a GPU that it has; it may use that share of its memory.
    """

    run_id: int
    run_config: UserConfig
    num_clients: int
    state_memory: int
    gpu_share: float


class Worker:
    """Handles messages, and keeps the states of the clients it handled last."""

    def __init__(self, setting: Setting) -> None:
        torch.set_num_threads(1)
        if setting.gpu_share and torch.cuda.is_available():
            torch.cuda.set_per_process_memory_fraction(min(setting.gpu_share, 1.0))
        self._setting = setting
        self._states = ClientStates(setting.state_memory)
        self._test: CentralTest | None = None

    def handle(
        self,
        data: bytes,
        shared: Sequence[ArrayRecord],
        moved: Mapping[int, Any],
        seconds: float | None,
    ) -> tuple[bytes, list[int], float]:
        """Run the ClientApp on every message.

        Args:
            data: The messages, packed.
            shared: The records kept apart from them.
            moved: Where the states of clients are that another worker had until now.
            seconds: Until the round's deadline, None for none.

        Returns:
            The replies, packed; the partitions among them that have a state; the seconds it took.
        """
        started = time.monotonic()
        for partition, state in moved.items():
            with suppress(ray.exceptions.RayError):  # the other worker died, and the state with it
                self._states.put(partition, pickle.loads(ray.get(state)))  # noqa: S301 - ours
        messages = unpack(data, shared)
        replies = []
        for message in messages:
            left = None if seconds is None else started + seconds - time.monotonic()
            replies.append(self._handle(message, left))
        partitions = [message.metadata.dst_node_id - FIRST_NODE_ID for message in messages]
        stateful = [partition for partition in partitions if partition in self._states]
        return pack(replies), stateful, time.monotonic() - started

    def release(self, partition: int) -> bytes:
        """Return a client's state, for the worker that is to have it, and forget it."""
        return pickle.dumps(self._states.take(partition))

    def evaluate(
        self, options: DataOptions, arrays: ArrayRecord, batches: Sequence[int]
    ) -> list[BatchResult]:
        """Test a model on some batches of the test set that the options lead to."""
        if self._test is None:
            config = parse_config(self._setting.run_config)
            task = tasks.load(config.task)
            self._test = CentralTest(task, task.dataset(options), config)
        return self._test.results(arrays, batches)

    def process_id(self) -> int:
        """Return this actor's process id; once it is there, the worker is ready."""
        return os.getpid()

    def close(self) -> None:
        """Delete what this worker has on disk."""
        self._states.close()

    def _handle(self, message: Message, seconds: float | None) -> Message:
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
            with _deadline(seconds):
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
        return reply


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
