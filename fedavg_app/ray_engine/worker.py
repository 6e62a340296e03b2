"""One long-lived Ray actor: it runs the same ClientApp as everywhere, for the clients it is given.

Ray starts it, places it and notices its death. Requests come over a connection of its own, which
takes 0.1 ms where a Ray call takes 1 ms and more; `worker_handle` is its other end. To a driver on
another Ray node it leads through a `relay`.
"""

import math
import os
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Listener
from pathlib import Path
from typing import Any, TypeVar

import ray
import torch
from flwr.app import ArrayRecord, Context, Message, RecordDict, UserConfig

import tasks
from fedavg_app.client_app import app
from fedavg_app.config import parse_config
from fedavg_app.flower_internals import FIRST_NODE_ID
from fedavg_app.node_config import NUM_PARTITIONS, PARTITION_ID
from fedavg_app.ray_engine.client_call import ClientCall, HandledMessage
from fedavg_app.ray_engine.client_states import ClientStates
from fedavg_app.ray_engine.local_connection import Address, listen
from fedavg_app.ray_engine.owned_folder import OwnedFolder
from fedavg_app.ray_engine.relay import start_relay
from fedavg_app.ray_engine.request_queue import Answer, Request, RequestQueue, WorkerError
from fedavg_app.server.evaluation import Batch, CentralEvaluation
from tasks.data.dataset import DataOptions
from tasks.training.evaluation import BatchResult

T = TypeVar("T")

# Answers that follow each other faster than this are sent together.
FLUSH_SECONDS = 0.003


@dataclass(frozen=True)
class WorkerSettings:
    """What every worker of a run is told.

    Attributes:
        run_id: The run's number.
        run_config: The run config that clients see.
        num_clients: K.
        state_memory: Bytes of clients' states that the worker keeps in memory.
        gpu_share: The share of a GPU that it has; it may use that share of its memory.
        folder: Where files of its own go, if it is on the driver's machine.
        key: The secret with which connections begin.
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

    def __init__(self, settings: WorkerSettings) -> None:
        torch.set_num_threads(1)
        if settings.gpu_share and torch.cuda.is_available():
            torch.cuda.set_per_process_memory_fraction(min(settings.gpu_share, 1.0))
        self._settings = settings
        # The driver deletes its folder even where this process is killed.
        parent = settings.folder if Path(settings.folder).is_dir() else None
        self._folder = OwnedFolder("fedavg-app-worker-", parent)
        self._states = ClientStates(settings.state_memory, Path(self._folder.name))
        self._listener: Listener | None = None
        self._relay: Any = None
        self._evaluation: CentralEvaluation | None = None

    def listen(self, driver_node: str) -> tuple[int, Address, Any]:
        """Listen for the driver's connection.

        Returns:
            This process's id; the address; and a relay that the driver can reach it by, None where
            the driver is on the same Ray node.
        """
        self._listener = listen(self._settings.key)
        if ray.get_runtime_context().get_node_id() != driver_node:
            self._relay = start_relay()  # kept: it ends when nobody refers to it
        return os.getpid(), self._listener.address, self._relay

    def serve(self) -> None:
        """Answer requests until the driver closes the connection."""
        assert self._listener is not None
        with self._listener, self._listener.accept() as connection:
            queue = RequestQueue(connection)
            while True:
                requests = queue.take()
                answers: list[Answer] = []
                sent = time.monotonic()
                for request in requests:
                    answers.append(self._answer(request))
                    if time.monotonic() - sent > FLUSH_SECONDS:
                        queue.send_answers(answers)
                        answers, sent = [], time.monotonic()
                if queue.ended:
                    self._folder.cleanup()
                    return  # Ray ends this process
                if queue.closed:
                    self._folder.cleanup()
                    os._exit(0)  # without Ray's own shutdown: the driver is gone
                queue.send_answers(answers)

    def _answer(self, request: Request) -> Answer:
        received, (name, *arguments) = request
        if name == "handle":
            message, seconds = arguments
            return _attempt(lambda: self.handle(message, seconds, received))
        return _attempt(lambda: getattr(self, name)(*arguments))

    def put_state(self, partition: int, state: RecordDict) -> None:
        """Store the state of a client that another worker had."""
        self._states.put(partition, state)

    def pop_state(self, partition: int) -> RecordDict:
        """Remove and return a client's state, for the worker that is to have it."""
        return self._states.pop(partition)

    def pickled_state(self, partition: int) -> bytes | None:
        """Return a client's state, pickled; None where it has none."""
        return self._states.pickled(partition)

    def handle(self, message: Message, seconds: float | None, received: float) -> HandledMessage:
        """Run the ClientApp on a message.

        Args:
            message: For the client whose node it names.
            seconds: From the time it was received to the round's deadline, None for none.
            received: That time, on the monotonic clock.
        """
        call = self._begin(message, seconds, received)
        call.handle(app)
        return self._finish(call)

    def _begin(self, message: Message, seconds: float | None, received: float) -> ClientCall:
        partition = message.metadata.dst_node_id - FIRST_NODE_ID
        context = Context(
            run_id=self._settings.run_id,
            node_id=message.metadata.dst_node_id,
            node_config={PARTITION_ID: partition, NUM_PARTITIONS: self._settings.num_clients},
            state=self._states.pop(partition),
            run_config=self._settings.run_config,
        )
        return ClientCall(message, context, math.inf if seconds is None else received + seconds)

    def _finish(self, call: ClientCall) -> HandledMessage:
        assert call.reply is not None
        self._states.put(int(call.context.node_config[PARTITION_ID]), call.state)
        return HandledMessage(call.reply, bool(call.state), call.seconds)

    def evaluate(
        self, options: DataOptions, arrays: ArrayRecord, batches: Sequence[Batch]
    ) -> list[BatchResult]:
        """Evaluate a model on some batches of the test set that the options lead to."""
        if self._evaluation is None:
            config = parse_config(self._settings.run_config)
            task = tasks.load(config.task)
            self._evaluation = CentralEvaluation(task, task.dataset(options), config)
        return self._evaluation.batch_results(arrays, batches)


def _attempt(action: Callable[[], T]) -> T | WorkerError:
    """Return what the action returns, or why it could not."""
    try:
        return action()
    except Exception as error:
        reason = "".join(traceback.format_exception_only(error)).strip()
        return WorkerError(reason, traceback.format_exc())
