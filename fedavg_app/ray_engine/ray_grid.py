"""`RayGrid`: Flower's `Grid` on Ray actors that live as long as the run (docs/engine.md)."""

import math
import pickle
import secrets
import signal
import threading
import time
from collections.abc import Iterable, Mapping, Set
from types import TracebackType
from typing import Any

from flwr.app import ArrayRecord, Message, UserConfig

from fedavg_app.config import RunConfig
from fedavg_app.flower_internals import (
    FIRST_NODE_ID,
    BaseGrid,
    assign_message_id,
    identify_server,
)
from fedavg_app.ray_engine.dispatcher import Dispatcher
from fedavg_app.ray_engine.owned_folder import OwnedFolder
from fedavg_app.ray_engine.pending_messages import MessageBatch
from fedavg_app.ray_engine.serialization import shared_records
from fedavg_app.ray_engine.worker import WorkerSettings
from fedavg_app.ray_engine.worker_handle import WorkerHandle
from fedavg_app.ray_engine.worker_pool import CHECK_SECONDS
from fedavg_app.server.evaluation import Batch, Evaluate, evaluation_batches
from tasks.base import Task
from tasks.data.dataset import Dataset
from tasks.training.evaluation import BatchResult, combine

RUN_ID = 1
STATE_MEMORY = 2**30
# Clients stop this long before a round's deadline (or a tenth of the time, if that is less), so
# that what was done by then arrives in time.
MARGIN_SECONDS = 0.25


class RayGrid(BaseGrid):
    """A grid whose nodes are ``num_clients`` virtual clients on ``num_workers`` Ray actors.

    A context manager: leaving it ends the actors. Ray must have been started.

    Args:
        run_config: What clients see as their context's run config. With its "round-timeout" the
            replies to messages are due within that time; later ones are lost.
        num_clients: K; node ``FIRST_NODE_ID + k`` holds partition k.
        num_workers: How many actors, each on one CPU.
        gpus_per_worker: The share of a GPU that each actor reserves.
        state_memory: Bytes of clients' states that each actor keeps in memory; more go to disk.
    """

    def __init__(
        self,
        run_config: UserConfig,
        num_clients: int,
        num_workers: int,
        gpus_per_worker: float = 0.0,
        state_memory: int = STATE_MEMORY,
    ) -> None:
        identify_server(RUN_ID)
        self._num_clients = num_clients
        self._timeout = float(run_config["round-timeout"]) or math.inf
        self._folder = OwnedFolder("fedavg-app-grid-")
        settings = WorkerSettings(
            RUN_ID, run_config, num_clients, state_memory, gpus_per_worker,
            self._folder.name, secrets.token_bytes(32),
        )  # fmt: skip
        self._dispatcher = Dispatcher(num_workers, settings)
        self._previous_handler: Any = None
        self._interrupted = False

    def __enter__(self) -> "RayGrid":
        """Return the grid; an interrupt ends what it is doing from now on."""
        if threading.current_thread() is threading.main_thread():
            self._previous_handler = signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the actors, and delete what they have on disk."""
        if self._previous_handler is not None:
            signal.signal(signal.SIGINT, self._previous_handler)
        self._dispatcher.pool.kill()
        self._folder.cleanup()

    @property
    def folder(self) -> str:
        """Where the workers on this machine have their files, each in a folder of its own."""
        return self._folder.name

    def get_node_ids(self) -> list[int]:
        """Return one node id per virtual client."""
        return list(range(FIRST_NODE_ID, FIRST_NODE_ID + self._num_clients))

    def worker_process_ids(self) -> list[int]:
        """Return the actors' process ids, once all have started."""
        while not all(worker.ready for worker in self._dispatcher.pool.workers):
            self.wait(CHECK_SECONDS)
        return [worker.process_id for worker in self._dispatcher.pool.workers]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Hand the messages to the workers; return the messages' ids."""
        pushed = list(messages)
        ids = [assign_message_id(message) for message in pushed]
        due = time.monotonic() + self._timeout
        margin = min(MARGIN_SECONDS, self._timeout / 10)
        self._dispatcher.submit(pushed, MessageBatch(due - margin, due, shared_records(pushed)))
        return ids

    def wait(self, seconds: float) -> None:
        """Return as soon as a worker has answered, after ``seconds`` at the latest.

        Raises:
            KeyboardInterrupt: There was an interrupt before, and Ray dropped its exception.
        """
        if self._interrupted:
            raise KeyboardInterrupt
        self._dispatcher.pool.wait(seconds)

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Return those replies that have come."""
        self._dispatcher.receive()
        self._dispatcher.send_queued()
        replies = self._dispatcher.replies
        wanted = message_ids if isinstance(message_ids, Set) else set(message_ids)
        return [replies.pop(message_id) for message_id in list(replies) if message_id in wanted]

    def evaluation(self, task: Task, data: Dataset, config: RunConfig) -> Evaluate:
        """Return what evaluates models on the workers, with the figures of `CentralEvaluation`."""
        batches = evaluation_batches(task, data, config)

        def evaluate(arrays: ArrayRecord) -> tuple[float, float]:
            dispatcher = self._dispatcher
            results: dict[Batch, BatchResult] = {}
            while missing := [batch for batch in batches if batch not in results]:
                idle = dispatcher.idle_workers()
                parts = {worker: missing[n :: len(idle)] for n, worker in enumerate(idle)}
                for worker, part in parts.items():
                    dispatcher.pool.attempt(
                        worker, worker.request, "evaluate", data.options, arrays, part
                    )
                while any(self._is_unanswered(worker, "evaluate", None) for worker in parts):
                    self._wait_for_answers()
                for worker, part in parts.items():
                    answer = dispatcher.answers.pop((worker, "evaluate", None), [])
                    results |= zip(part, answer, strict=False)
            return combine(results[batch] for batch in batches)

        return evaluate

    def changed_states(self) -> dict[int, bytes | None]:
        """Return, by partition, the states changed since the last call, pickled; None for none."""
        dispatcher = self._dispatcher
        changed, dispatcher.changed = dispatcher.changed, set()
        while dispatcher.any_moving(changed):
            self._wait_for_answers()
        asked: dict[int, WorkerHandle] = {}
        for client in changed & dispatcher.owner.keys():
            asked[client] = dispatcher.owner[client]
            dispatcher.pool.attempt(asked[client], asked[client].request, "pickled_state", client)
        # A worker that dies meanwhile has lost its clients' states: they have none.
        while any(self._is_unanswered(asked[client], "pickled_state", client) for client in asked):
            self._wait_for_answers()
        states = {
            client: dispatcher.answers.pop((worker, "pickled_state", client), None)
            for client, worker in asked.items()
        }
        return {client: states.get(client) for client in changed}

    def restore_states(self, states: Mapping[int, bytes]) -> None:
        """Give clients the states that `changed_states` returned."""
        self.worker_process_ids()
        dispatcher = self._dispatcher
        for number, (client, state) in enumerate(states.items()):
            worker = dispatcher.pool.workers[number % len(dispatcher.pool.workers)]
            dispatcher.owner[client] = worker
            loaded = pickle.loads(state)  # noqa: S301 - our own
            dispatcher.pool.attempt(worker, worker.request, "put_state", client, loaded)

    def _wait_for_answers(self) -> None:
        """Wait until a worker has answered, but not for one that hangs."""
        self.wait(CHECK_SECONDS)
        self._dispatcher.receive()
        self._dispatcher.pool.replace_hanging()

    def _is_unanswered(self, worker: WorkerHandle, name: str, key: object) -> bool:
        """Return whether a request to a worker that is still alive has no answer yet."""
        dispatcher = self._dispatcher
        return worker in dispatcher.pool.workers and (worker, name, key) not in dispatcher.answers

    def _interrupt(self, *_: object) -> None:
        """Raise, and again when a round goes on: Ray drops exceptions in its callbacks."""
        self._interrupted = True
        raise KeyboardInterrupt
