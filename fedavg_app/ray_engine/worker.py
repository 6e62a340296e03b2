"""One long-lived Ray actor: it runs the same ClientApp as everywhere, for the clients it is given.

It imports torch and loads the data once, and keeps the states of its clients between rounds. Until
the first actor has started, a thread of the driver does the same.
"""

import math
import os
import pickle
import signal
import socket
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass
from multiprocessing.connection import Connection, Listener
from typing import Any, NamedTuple

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict, UserConfig

import tasks
from fedavg_app.client.client_process import client_process, load_dataset
from fedavg_app.client_app import app
from fedavg_app.client_settings import NUM_PARTITIONS, PARTITION_ID
from fedavg_app.config import parse_config
from fedavg_app.flower_internals import FIRST_NODE_ID, error_reply
from fedavg_app.partitioning import DataDigests
from fedavg_app.ray_engine.messages import Stream, keep_freed_memory, loads
from fedavg_app.server.global_evaluation import Batch, CentralEvaluation
from tasks.data.dataset import DataOptions
from tasks.training.evaluation import BatchResult

RUN_ID = 1
LATE = "still training at the round's deadline"
NOT_BEGUN = "not started before the round's deadline"


@dataclass(frozen=True)
class WorkerSettings:
    """What every worker of a run is told.

    Attributes:
        run_config: The run config that clients see.
        gpu_share: The share of a GPU that it has; it may use that share of its memory.
        key: The secret with which the driver's connection begins.
        client_config: What messages tell clients; with it the worker loads the data as it starts.
    """

    run_config: UserConfig
    gpu_share: float
    key: bytes
    client_config: ConfigRecord | None


class WorkerError(NamedTuple):
    """Why a worker could not answer a request: the error in one line, and its traceback."""

    reason: str
    traceback: str


class WorkerStart(NamedTuple):
    """A worker's process, where it listens, and the digests of the data that it has loaded.

    There is no address where the driver is on another Ray node, and there are no digests where it
    was not told which data to load.
    """

    process_id: int
    address: Any
    digests: DataDigests | None


# A client's reply, and whether the client has a state now.
HandledClient = tuple[Message, bool]


class DeadlineError(BaseException):
    """A client was not done at the deadline. No ``except Exception`` of its code stops this."""


class Worker:
    """Answers requests one after the other, and keeps the states of clients between them."""

    def __init__(self, settings: WorkerSettings) -> None:
        torch.set_num_threads(1)
        keep_freed_memory()
        if settings.gpu_share and torch.cuda.is_available():
            torch.cuda.set_per_process_memory_fraction(min(settings.gpu_share, 1.0))
        self._settings = settings
        self._states: dict[int, RecordDict] = {}  # by partition
        self._shared: list[Any] = []  # the records that the messages of the round have in common
        self._listener: Listener | None = None
        self._evaluations: dict[str, CentralEvaluation] = {}  # by split

    def start(self, driver_node: str | None) -> WorkerStart:
        """Load the data; return what the driver needs to know of this process.

        Args:
            driver_node: The driver's Ray node; None in the driver itself.
        """
        address = digests = None
        if self._settings.client_config is not None:
            config: Any = dict(self._settings.client_config)
            digests = client_process({PARTITION_ID: 0}, self._settings.run_config, config).digests
        if driver_node is not None and driver_node == own_node():
            self._listener = Listener(("127.0.0.1", 0), authkey=self._settings.key)
            address = self._listener.address
        return WorkerStart(os.getpid(), address, digests)

    def serve(self) -> None:
        """Answer the requests of the driver's connection until it is closed."""
        assert self._listener is not None
        with self._listener, suppress(EOFError, OSError):
            connection = self._listener.accept()
            set_tcp_nodelay(connection)
            self.answer_all(connection)

    def answer_all(self, connection: "Connection[Any, Any]") -> None:
        """Answer a connection's requests; EOFError or OSError once it is closed."""
        with closing(Stream(connection)) as stream:
            while True:
                stream.send(self.answer(*stream.receive()))

    def answer(self, name: str, arguments: tuple[Any, ...]) -> Any:
        """Call one of the methods below; return what it returns, or a `WorkerError`."""
        try:
            return getattr(self, name)(*arguments)
        except BaseException as error:
            reason = "".join(traceback.format_exception_only(error)).strip()
            return WorkerError(reason, traceback.format_exc())

    def handle(
        self,
        messages: list[bytes],
        shared: list[Any] | None,
        states: Mapping[int, bytes],
        seconds: float,
    ) -> tuple[list[HandledClient], float]:
        """Run the ClientApp on messages; return each reply, and the seconds it took.

        Args:
            messages: What `Batch.dumps` returned of each, for the clients that they name.
            shared: Its batch's shared records; None where they are those of the call before.
            states: The states of those clients whose state is not here, pickled.
            seconds: What is left of the round; infinity for no limit.
        """
        began = time.monotonic()
        if shared is not None:
            self._shared = shared
        self._states |= {client: pickle.loads(state) for client, state in states.items()}  # noqa: S301
        deadline = began + seconds
        handled = [self._client(loads(message, self._shared), deadline) for message in messages]
        return handled, time.monotonic() - began

    def _client(self, message: Message, deadline: float) -> HandledClient:
        partition = message.metadata.dst_node_id - FIRST_NODE_ID
        before = self._states.get(partition)
        run_config = dict(self._settings.run_config)
        context = Context(
            run_id=RUN_ID,
            node_id=message.metadata.dst_node_id,
            node_config={PARTITION_ID: partition, NUM_PARTITIONS: run_config["num-clients"]},
            state=deepcopy(before) if before else RecordDict(),  # bytes are not copied
            run_config=run_config,
        )
        try:
            with interrupted_at(deadline):
                reply = app(message, context)
            if not isinstance(reply, Message):
                raise TypeError(f"the ClientApp returned {type(reply).__name__}, not a Message")
        except DeadlineError as error:  # the client keeps its state: it may have been changing it
            return error_reply(message, str(error)), before is not None
        except BaseException:  # sys.exit in a client's code is that client's error
            reply = error_reply(message, traceback.format_exc())
        # Where the client raised, too, as on a SuperNode.
        self._states.pop(partition, None)
        if context.state:
            self._states[partition] = context.state
        return reply, bool(context.state)

    def evaluate(
        self, options: DataOptions, split: str, arrays: ArrayRecord, batches: Sequence[Batch]
    ) -> list[BatchResult]:
        """Evaluate a model on some batches of a split of the data that the options lead to."""
        if split not in self._evaluations:
            config = parse_config(self._settings.run_config)
            task = tasks.load(config.task)
            data = load_dataset(config.task, options)
            self._evaluations[split] = CentralEvaluation(task, data, config, split)
        return self._evaluations[split].batch_results(arrays, batches)

    def states(self) -> dict[int, bytes]:
        """Return the states of its clients, pickled, by partition."""
        return {client: pickle.dumps(state) for client, state in self._states.items()}

    def give_up(self, clients: Sequence[int]) -> dict[int, bytes]:
        """Return the states of these clients as `states` does, and keep them no longer."""
        return {client: pickle.dumps(self._states.pop(client)) for client in clients}


def own_node() -> str:
    """Return the Ray node of this process."""
    import ray  # not at the top: the driver trains before it has imported Ray

    return str(ray.get_runtime_context().get_node_id())


def set_tcp_nodelay(connection: "Connection[Any, Any]") -> None:
    """Disable Nagle's algorithm on a connection: short messages are sent without delay."""
    with socket.socket(fileno=os.dup(connection.fileno())) as end:
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


@contextmanager
def interrupted_at(deadline: float) -> Iterator[None]:
    """Raise `DeadlineError` in what runs inside once the deadline has come, or before it begins.

    It interrupts Python code, waiting included, but no call of a library that hangs.

    Args:
        deadline: On the monotonic clock; infinity for none.
    """
    if deadline == math.inf:
        yield
        return
    left = deadline - time.monotonic()
    if left <= 0:
        raise DeadlineError(NOT_BEGUN)

    def expire(*_: object) -> None:
        raise DeadlineError(LATE)

    before = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, left)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
