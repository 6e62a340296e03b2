"""`RayGrid`: Flower's `Grid` on Ray actors that live as long as the run (docs/engine.md)."""

import logging
import math
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Set
from concurrent.futures import Future
from dataclasses import replace
from itertools import chain
from multiprocessing import connection
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, UserConfig

from fedavg_app.config import RunConfig
from fedavg_app.errors import RunError
from fedavg_app.flower_internals import (
    FIRST_NODE_ID,
    BaseGrid,
    assign_message_id,
    error_reply,
    identify_server,
)
from fedavg_app.partitioning import DataDigests
from fedavg_app.ray_engine.messages import Batch, PendingMessage, keep_freed_memory
from fedavg_app.ray_engine.ray_cluster import WorkerResources
from fedavg_app.ray_engine.worker import RUN_ID, WorkerError, WorkerSettings
from fedavg_app.ray_engine.worker_handle import (
    Call,
    ClientStates,
    DriverWorker,
    WorkerDiedError,
    WorkerHandle,
)
from fedavg_app.server.global_evaluation import TEST, Evaluate, evaluation_batches
from fedavg_app.server.global_evaluation import Batch as TestBatch
from fedavg_app.server.nodes import Nodes
from tasks.base import Task
from tasks.data.dataset import Dataset
from tasks.training.evaluation import BatchResult, Scores, combine

logger = logging.getLogger("fedavg_app.ray_engine")

# Clients stop this long before a round's deadline (or a tenth of the time, if that is less), so
# that their replies arrive in time.
MARGIN_SECONDS = 0.25
# How often deadlines are looked at.
CHECK_SECONDS = 0.1
# How often workers that die as they start, or as they test the model, are replaced.
MAX_FAILURES = 3
# Seconds of waiting after which a line says how many workers have not started.
SILENCE_SECONDS = 30.0
# A client moves to a less busy worker if a message takes longer than this, in seconds: about what
# the state of a model of a million weights takes.
MOVE_SECONDS = 0.03


class RayGrid(BaseGrid):
    """A grid whose nodes are ``num_clients`` virtual clients on ``num_workers`` Ray actors.

    A context manager: leaving it ends the actors. Ray must have been started.

    Args:
        run_config: What clients see as their context's run config. Without "links", its
            "round-timeout" is the time that a round's clients have.
        num_clients: K; node ``FIRST_NODE_ID + k`` holds partition k.
        num_workers: How many actors, each on one CPU.
        gpus_per_worker: The share of a GPU that each actor reserves.
        client_config: What messages tell clients; with it actors load the data as they start.
        check_data: Called with the digests of an actor's data; raises where they are others than
            the driver's.
        resources: The number of actors and their shares, once Ray has started; until one of them
            has, too, this process trains. Ray need not have been started then.
    """

    def __init__(
        self,
        run_config: UserConfig,
        num_clients: int,
        num_workers: int,
        gpus_per_worker: float = 0.0,
        client_config: ConfigRecord | None = None,
        check_data: Callable[[DataDigests], None] = lambda _: None,
        resources: "Future[WorkerResources] | None" = None,
    ) -> None:
        identify_server(RUN_ID)
        keep_freed_memory()
        self._num_clients = num_clients
        # With links the timeout is of virtual seconds.
        timeout = 0.0 if run_config["links"] else float(run_config["round-timeout"])
        self._timeout = timeout or math.inf
        self._settings = WorkerSettings(
            run_config, gpus_per_worker, secrets.token_bytes(32), client_config
        )
        self._check_data = check_data
        self._failed_starts, self._cause = 0, ""  # in a row; of the last death
        self._resources = resources
        self._workers: list[WorkerHandle] = []
        if resources is not None:
            self._workers.append(DriverWorker(0, self._settings))
        self._workers += [WorkerHandle(number, self._settings) for number in range(num_workers)]
        self._states = ClientStates()
        self._free: deque[PendingMessage] = deque()  # for any worker
        self._replies: dict[str, Message] = {}
        self._seconds: dict[str, float] = {}  # what a message of a type took lately

    def __enter__(self) -> "RayGrid":
        """Return the grid."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the actors."""
        for worker in self._workers:
            worker.kill()

    def get_node_ids(self) -> list[int]:
        """Return one node id per virtual client."""
        return list(range(FIRST_NODE_ID, FIRST_NODE_ID + self._num_clients))

    def numbered_nodes(self) -> Nodes:
        """Return the nodes, once there is a worker; `check_data` has passed its data."""
        self._wait_until(lambda: any(worker.process_id for worker in self._workers))
        return Nodes(self._num_clients)

    def worker_process_ids(self) -> list[int]:
        """Return the actors' process ids, once all have started."""
        self._wait_until(lambda: all(worker.process_id for worker in self._workers))
        return [worker.process_id for worker in self._workers]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Queue the messages, once there is a worker; return their ids."""
        pushed = list(messages)
        ids = [assign_message_id(message) for message in pushed]
        self._receive()
        self._hand_over()
        # The time that workers take to start does not count as the round's.
        self._wait_until(lambda: any(worker.process_id for worker in self._workers))
        left = self._timeout - min(MARGIN_SECONDS, self._timeout / 10)
        batch = Batch(pushed, time.monotonic() + left)
        for message in pushed:
            pending = PendingMessage(message, batch)
            owner = self._states.owner.get(pending.partition)
            (self._free if owner is None else owner.queue).append(pending)
        if any(
            self._seconds.get(message.metadata.message_type, 0.0) > MOVE_SECONDS
            for message in pushed
        ):
            self._level_loads()
        self._hand_out()
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Return those replies that have come."""
        self._receive()
        wanted = message_ids if isinstance(message_ids, Set) else set(message_ids)
        found = [message_id for message_id in self._replies if message_id in wanted]
        return [self._replies.pop(message_id) for message_id in found]

    def wait(self, seconds: float) -> None:
        """Return as soon as a worker has answered, after ``seconds`` at the latest."""
        self._answering(min(seconds, CHECK_SECONDS))

    def take_lost_states(self) -> list[int]:
        """Return the clients that have lost their states since the last call, rising."""
        return self._states.take_lost()

    def evaluation(
        self, task: Task, data: Dataset, config: RunConfig, split: str = TEST
    ) -> Evaluate:
        """Return what evaluates models on the workers, with the figures of `CentralEvaluation`."""
        batches = evaluation_batches(task, data, config, split)

        def evaluate(arrays: ArrayRecord) -> Scores:
            results: dict[TestBatch, BatchResult] = {}
            failures = 0  # in a row
            while missing := [batch for batch in batches if batch not in results]:
                if failures > MAX_FAILURES:
                    raise RunError(f"no worker can evaluate: {self._cause}")
                self._wait_until(lambda: any(worker.idle for worker in self._workers))
                idle = [worker for worker in self._workers if worker.idle]
                parts = {worker: missing[number :: len(idle)] for number, worker in enumerate(idle)}
                asked = {
                    worker: (data.options, split, arrays, part) for worker, part in parts.items()
                }
                for worker, answer in self._ask("evaluate", asked).items():
                    results |= zip(parts[worker], answer, strict=True)
                failures = 0 if results.keys() & set(missing) else failures + 1
            return combine(task.test_metrics(), (results[batch] for batch in batches))

        return evaluate

    def client_states(self) -> dict[int, bytes]:
        """Return the clients' states, pickled, by partition."""
        started = [worker for worker in self._workers if worker.process_id]
        states = self._states.parked.copy()
        for found in self._ask("states", dict.fromkeys(started, ())).values():
            states |= found
        return states

    def restore_states(self, states: Mapping[int, bytes]) -> None:
        """Give clients the states that `client_states` returned."""
        self._states.restore(states)

    def _start_workers(self) -> None:
        """Start the actors, once Ray has started."""
        if self._resources is not None and self._resources.done():
            number, share = self._resources.result()
            self._resources, self._settings = None, replace(self._settings, gpu_share=share)
            self._workers += [WorkerHandle(each, self._settings) for each in range(number)]

    def _hand_over(self) -> None:
        """End the training in this process, between two rounds, once an actor has started."""
        here = self._workers[0]
        if not isinstance(here, DriverWorker) or not any(
            worker.process_id for worker in self._workers[1:]
        ):
            return
        self._states.park(here, self._ask("states", {here: ()})[here])
        here.kill()
        self._workers.remove(here)

    def _level_loads(self) -> None:
        """Take clients with a state from workers that have more than their share of messages."""
        # A worker that is still busy with an earlier round's message may hang.
        idle = [worker for worker in self._workers if worker.idle]
        num_messages = len(self._free) + sum(len(worker.queue) for worker in idle)
        share = math.ceil(num_messages / max(len(idle), 1))
        leaving = {
            worker: [worker.queue.pop() for _ in range(len(worker.queue) - share)]
            for worker in idle
            if len(worker.queue) > share
        }
        clients = {worker: ([each.partition for each in some],) for worker, some in leaving.items()}
        for states in self._ask("give_up", clients).values():
            self._states.parked |= states
        for pending in chain(*leaving.values()):
            self._states.owner.pop(pending.partition, None)
            self._free.append(pending)

    def _ask(self, method: str, arguments: Mapping[WorkerHandle, tuple[Any, ...]]) -> dict[
        WorkerHandle, Any
    ]:  # fmt: skip
        """Return what a method of these workers returns, but for those that die."""
        calls = {worker: Call(method, given) for worker, given in arguments.items()}
        for worker, call in calls.items():
            worker.next_call = call
        self._hand_out()
        self._wait_until(lambda: all(call.done for call in calls.values()))
        return {worker: call.answer for worker, call in calls.items() if worker in self._workers}

    def _wait_until(self, condition: Callable[[], bool]) -> None:
        silent_until = time.monotonic() + SILENCE_SECONDS
        while not condition():
            self.wait(CHECK_SECONDS)
            self._receive()
            missing = sum(not worker.process_id for worker in self._workers)
            if missing and time.monotonic() > silent_until:
                line = "%d of %d workers have not started: are Ray's CPUs free?"
                logger.warning(line, missing, len(self._workers))
                silent_until = math.inf

    def _answering(self, seconds: float) -> list[WorkerHandle]:
        """Return the workers that have answered or died; wait ``seconds`` at most for the first."""
        ready = connection.wait([worker.fileno() for worker in self._workers], seconds)
        return [worker for worker in self._workers if worker.fileno() in ready]

    def _receive(self) -> None:
        """Take in what workers have answered, replace those that hang, and hand out work."""
        self._start_workers()
        for worker in self._answering(0):
            try:
                self._take(worker, worker.receive())
            except WorkerDiedError as error:
                self._replace(worker, str(error))
        now = time.monotonic()
        for worker in [handle for handle in self._workers if now > handle.hangs_at]:
            self._replace(worker, "a client hung beyond the round's deadline, and it was ended")
        self._hand_out()

    def _take(self, worker: WorkerHandle, call: Call) -> None:
        """Keep what a worker has answered."""
        if call.name == "start":
            self._failed_starts = 0
            if call.answer.digests is not None:
                self._check_data(call.answer.digests)
        if isinstance(call.answer, WorkerError):
            logger.error("worker %d raised:\n%s", worker.number, call.answer.traceback.rstrip())
            raise RunError(f"worker {worker.number} cannot {call.name}: {call.answer.reason}")
        if call.pending:
            handled, seconds = call.answer
            kind, each = call.pending[0].message_type, seconds / len(handled)
            self._seconds[kind] = (self._seconds.get(kind, each) + each) / 2
            for pending, (reply, has_state) in zip(call.pending, handled, strict=True):
                self._states.note_handled(pending.partition, has_state=has_state)
                self._keep_reply(pending, reply)

    def _hand_out(self) -> None:
        """Give idle workers the clients whose state they have, or their shares of the others."""
        started = sum(bool(worker.process_id) for worker in self._workers)
        share = math.ceil(len(self._free) / max(started, 1))
        for worker in [handle for handle in self._workers if handle.idle]:
            try:
                if worker.next_call:
                    worker.send(worker.next_call)
                elif chosen := self._choose(worker, worker.queue or self._free, share):
                    clients = [message.partition for message in chosen]
                    worker.handle(chosen, self._states.unpark(clients))
            except WorkerDiedError as error:
                self._replace(worker, str(error))

    def _choose(
        self, worker: WorkerHandle, queue: deque[PendingMessage], share: int
    ) -> list[PendingMessage]:
        """Take the messages of a worker's next task from a queue; they are of one batch."""
        each = self._seconds.get(queue[0].message_type, math.inf) if queue else math.inf
        most = max(int(worker.task_seconds / each), 1)
        if queue is self._free:
            most = min(most, share)
        chosen: list[PendingMessage] = []
        while queue and len(chosen) < most and queue[0].batch is (chosen or queue)[0].batch:
            pending = queue.popleft()
            owner = self._states.owner.setdefault(pending.partition, worker)
            if owner is worker:
                chosen.append(pending)
            else:  # an earlier message to the same client is there
                owner.queue.append(pending)
        return chosen

    def _keep_reply(self, pending: PendingMessage, reply: Message) -> None:
        """Keep a message's reply until it is taken."""
        assign_message_id(reply)
        self._replies[pending.message.metadata.message_id] = reply

    def _replace(self, worker: WorkerHandle, cause: str) -> None:
        """Start another worker; answer the messages that this one had begun with an error.

        Its clients lose their states; the messages that it had not begun go to other workers.

        Raises:
            RunError: Workers die as they start, again and again, or this process cannot train.
        """
        if isinstance(worker, DriverWorker):
            raise RunError(f"this process cannot train: {cause}")
        self._cause = cause
        self._failed_starts += not worker.process_id
        if self._failed_starts > MAX_FAILURES:
            raise RunError(f"no worker can start: {cause}")
        died = f"worker {worker.number} died: {cause}"
        lost = self._states.lose(worker)
        whose = f"; clients {', '.join(map(str, lost))} have lost their states"
        logger.warning("%s; it is replaced%s", died, whose if lost else "")
        worker.kill()
        place = self._workers.index(worker)
        self._workers[place] = WorkerHandle(worker.number, self._settings)
        begun = worker.call.pending if worker.call else []
        for call in filter(None, (worker.call, worker.next_call)):
            call.done = True
        clients = ", ".join(str(message.partition) for message in begun)
        for pending in begun:
            reason = f"{died} (it had client {clients})"
            self._keep_reply(pending, error_reply(pending.message, reason))
        self._free.extend(worker.queue)
