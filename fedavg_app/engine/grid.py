"""Flower's `Grid` on Ray actors that live as long as the run (docs/engine.md).

The workers are handed the messages of a round in as few Ray calls as keep all of them at work. A
client that remembers something belongs to the worker that has its state; the others are anyone's.
"""

import logging
import math
import time
from collections import deque
from collections.abc import Iterable
from types import TracebackType
from typing import Any

import ray
from flwr.app import ArrayRecord, Message, UserConfig

from fedavg_app.config import RunConfig
from fedavg_app.engine.jobs import Batch, Hand, Job
from fedavg_app.engine.parcel import pack, shared_records, unpack
from fedavg_app.engine.schedule import call_size, moves, shares
from fedavg_app.engine.worker import Setting, Worker
from fedavg_app.errors import RunError
from fedavg_app.evaluation import Evaluate, batch_count
from fedavg_app.internals import FIRST_NODE_ID, BaseGrid, error_reply, identify_server, stamp
from tasks.base import BatchResult, Task, combine
from tasks.data.store import Dataset

logger = logging.getLogger("fedavg_app.engine")

RUN_ID = 1
STATE_MEMORY = 2**30
# Calls that a worker has at a time: it begins the second while the first one's replies travel.
CALLS = 2
# A worker that has not come back this long after the round's deadline hangs, and is replaced.
GRACE_SECONDS = 2.0
# Workers that die before they have started are replaced this often.
MOST_FAILED_STARTS = 3


class RayGrid(BaseGrid):
    """A grid whose nodes are ``num_clients`` virtual clients on ``num_workers`` Ray actors.

    A context manager: leaving it ends the actors. Ray must have been started.

    Args:
        run_config: What clients see as their context's run config. With its "round-timeout" the
            answers to messages are due within that time; later ones are lost.
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
        self._actor = ray.remote(Worker).options(num_cpus=1, num_gpus=gpus_per_worker)
        self._setting = Setting(RUN_ID, run_config, num_clients, state_memory, gpus_per_worker)
        # The references of calls that go on, with their workers and jobs (none: it starts).
        self._calls: dict[Any, tuple[Hand, list[Job]]] = {}
        self._failed_starts = 0
        self._workers = [self._start(number) for number in range(num_workers)]
        self._owner: dict[int, Hand] = {}
        self._moved: dict[int, Any] = {}  # states on their way from one worker to another
        self._free: deque[Job] = deque()
        self._replies: dict[str, Message] = {}
        # What a message of each type took lately, in seconds.
        self._seconds: dict[str, float] = {}

    def __enter__(self) -> "RayGrid":
        """Return the grid."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the actors, and delete what they have on disk."""
        idle = [worker.actor for worker in self._workers if worker.ready and not worker.calls]
        if idle:
            ray.wait([actor.close.remote() for actor in idle], num_returns=len(idle), timeout=1)
        for worker in self._workers:
            ray.kill(worker.actor)

    def get_node_ids(self) -> list[int]:
        """Return one node id per virtual client."""
        return list(range(FIRST_NODE_ID, FIRST_NODE_ID + self._num_clients))

    def worker_process_ids(self) -> list[int]:
        """Return the actors' process ids."""
        return [ray.get(worker.actor.process_id.remote()) for worker in self._workers]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Hand the messages to the workers; return the messages' ids."""
        pushed = list(messages)
        ids = [stamp(message) for message in pushed]
        shared = shared_records(pushed)
        batch = Batch(time.monotonic() + self._timeout, shared, ray.put(shared) if shared else [])
        for message in pushed:
            job = Job(message, batch)
            owner = self._owner.get(job.partition)
            (self._free if owner is None else owner.queue).append(job)
        self._collect()
        self._even_out()
        self._hand_out()
        return ids

    def wait(self, seconds: float) -> None:
        """Return as soon as a worker has answered, after ``seconds`` at the latest."""
        if self._calls:
            ray.wait(list(self._calls), num_returns=1, timeout=seconds)
        else:
            time.sleep(seconds)

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Return those replies that have come."""
        self._collect()
        self._hand_out()
        found = [message_id for message_id in message_ids if message_id in self._replies]
        return [self._replies.pop(message_id) for message_id in found]

    def evaluation(self, task: Task, data: Dataset, config: RunConfig) -> Evaluate:
        """Return what tests models on the workers, with the figures of `CentralTest`."""
        del task, config  # the workers have a run config of their own
        numbers = range(batch_count(len(data.test)))

        def test(arrays: ArrayRecord) -> tuple[float, float]:
            model = ray.put(arrays)
            found: dict[int, BatchResult] = {}
            while lacking := [number for number in numbers if number not in found]:
                idle = self._idle()
                parts = [lacking[place :: len(idle)] for place in range(len(idle))]
                calls = [
                    worker.actor.evaluate.remote(data.options, model, part)
                    for worker, part in zip(idle, parts, strict=True)
                ]
                for worker, part, call in zip(idle, parts, calls, strict=True):
                    try:
                        found |= zip(part, ray.get(call), strict=True)
                    except ray.exceptions.RayActorError as error:
                        self._replace(worker, error)
            return combine(found[number] for number in numbers)

        return test

    def _idle(self) -> list[Hand]:
        """Return the workers that have nothing to do; wait until there is one."""
        while True:
            self._collect()
            self._kill_hanging()
            idle = [worker for worker in self._workers if worker.ready and not worker.calls]
            if idle:
                return idle
            self.wait(GRACE_SECONDS)

    def _even_out(self) -> None:
        """Move clients from workers that have too many of the pushed jobs, where it pays.

        Only while no worker is at work: none ever waits for another.
        """
        if any(worker.calls for worker in self._workers):
            return
        loads = [len(worker.queue) for worker in self._workers]
        seconds = self._expect(job for worker in self._workers for job in worker.queue)
        for source, target in moves(loads, len(self._free), seconds):
            job = self._workers[source].queue.pop()
            release = self._workers[source].actor.release
            self._moved[job.partition] = release.remote(job.partition)
            self._owner[job.partition] = self._workers[target]
            self._workers[target].queue.append(job)

    def _hand_out(self) -> None:
        """Give the workers what there is to do."""
        self._kill_hanging()
        for depth in range(CALLS):
            ready = [worker for worker in self._workers if worker.ready]
            free = shares(len(self._free), [len(worker.queue) for worker in ready])
            for worker, extra in zip(ready, free, strict=True):
                if len(worker.calls) <= depth and (worker.queue or extra):
                    self._call(worker, extra)

    def _call(self, worker: Hand, extra: int) -> None:
        """Hand a worker the next of its jobs, and of ``extra`` free ones."""
        waiting = [*worker.queue, *list(self._free)[:extra]]
        size = call_size(len(waiting), self._expect(waiting))
        batch = waiting[0].batch
        jobs = [job for job in waiting[:size] if job.batch is batch]
        for job in jobs:
            (worker.queue if worker.queue and worker.queue[0] is job else self._free).popleft()
        moved = {
            job.partition: self._moved.pop(job.partition)
            for job in jobs
            if job.partition in self._moved
        }
        left = batch.deadline - time.monotonic() - self._margin()
        try:
            call = worker.actor.handle.remote(
                pack([job.message for job in jobs], batch.shared),
                batch.reference,
                moved,
                None if math.isinf(left) else left,
            )
        except ray.exceptions.RayError as error:  # the object store is full
            self._answer(jobs, error)
            return
        worker.calls.append(call)
        self._calls[call] = (worker, jobs)

    def _expect(self, jobs: Iterable[Job]) -> float:
        """Return what one of the jobs takes by experience; infinity where there is none."""
        return max(
            (self._seconds.get(kind, math.inf) for kind in {j.kind for j in jobs}), default=0
        )

    def _margin(self) -> float:
        """Return how long before a deadline the workers stop, so that their answers are in time."""
        return min(0.1 * self._timeout, 0.25)

    def _collect(self) -> None:
        """Take in what workers have answered, and replace those that have died."""
        if not self._calls:
            return
        done, _ = ray.wait(list(self._calls), num_returns=len(self._calls), timeout=0)
        for call in done:
            if call not in self._calls:
                continue  # an earlier one showed that this worker has died
            worker, jobs = self._calls[call]
            try:
                answer = ray.get(call)
            except ray.exceptions.RayActorError as error:
                self._replace(worker, error)
                continue
            except ray.exceptions.RayError as error:
                self._answer(jobs, error)
            else:
                self._take_in(worker, jobs, answer)
            del self._calls[call]
            worker.calls.remove(call)

    def _take_in(self, worker: Hand, jobs: list[Job], answer: Any) -> None:
        if not jobs:
            worker.ready = True
            return
        data, stateful, seconds = answer
        for job, reply in zip(jobs, unpack(data), strict=True):
            stamp(reply)
            self._keep(job, reply)
            self._owner.pop(job.partition, None)
        self._owner |= dict.fromkeys(stateful, worker)
        kind, each = jobs[0].kind, seconds / len(jobs)
        self._seconds[kind] = (self._seconds.get(kind, each) + each) / 2

    def _answer(self, jobs: list[Job], error: Exception) -> None:
        """Answer jobs that failed as a whole."""
        reason = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        logger.warning("%d messages failed: %s", len(jobs), reason)
        for job in jobs:
            self._keep(job, error_reply(job.message, reason))

    def _keep(self, job: Job, reply: Message) -> None:
        """Keep a reply until it is pulled; nobody pulls one that comes after its deadline."""
        if time.monotonic() <= job.batch.deadline:
            self._replies[job.message_id] = reply

    def _kill_hanging(self) -> None:
        now = time.monotonic()
        for worker, jobs in self._calls.values():
            if jobs and now > jobs[0].batch.deadline + GRACE_SECONDS:
                ray.kill(worker.actor)

    def _replace(self, worker: Hand, error: Exception) -> None:
        """Start a worker in the place of one that has died, whose clients have forgotten.

        What it was at is answered with an error; what it had not begun goes to others.

        Raises:
            RunError: Workers die as they start, again and again.
        """
        reason = f"worker {worker.number} died ({str(error).splitlines()[0]})"
        if not worker.ready:
            self._failed_starts += 1
            if self._failed_starts > MOST_FAILED_STARTS:
                raise RunError(f"no worker can start: {error}")
        logger.warning("%s; it is replaced and its clients forget their state", reason)
        begun, *others = [self._calls.pop(call)[1] for call in worker.calls] or [[]]
        for job in begun:
            self._keep(job, error_reply(job.message, reason))
        for jobs in (*others, worker.queue):
            self._free.extend(jobs)
        self._owner = {client: hand for client, hand in self._owner.items() if hand is not worker}
        self._workers[worker.number] = self._start(worker.number)

    def _start(self, number: int) -> Hand:
        worker = Hand(number, self._actor.remote(self._setting))
        call = worker.actor.process_id.remote()
        worker.calls.append(call)
        self._calls[call] = (worker, [])
        return worker
