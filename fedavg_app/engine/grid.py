"""Flower's `Grid` on Ray actors that live as long as the run (docs/engine.md).

A client that remembers something belongs to the worker that has its state; the others are anyone's.
"""

import logging
import math
import pickle
import secrets
import signal
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from multiprocessing import connection
from types import TracebackType
from typing import Any

import ray
from flwr.app import ArrayRecord, Message, UserConfig

from fedavg_app.config import RunConfig
from fedavg_app.engine.jobs import Batch, Job
from fedavg_app.engine.link import Link, WorkerDiedError
from fedavg_app.engine.parcel import shared_records
from fedavg_app.engine.schedule import moves, shares, window
from fedavg_app.engine.worker import Setting
from fedavg_app.errors import RunError
from fedavg_app.evaluation import Evaluate, batch_count
from fedavg_app.internals import FIRST_NODE_ID, BaseGrid, error_reply, identify_server, stamp
from tasks.base import BatchResult, Task, combine
from tasks.data.store import Dataset

logger = logging.getLogger("fedavg_app.engine")

RUN_ID = 1
STATE_MEMORY = 2**30
# Clients stop this long before a round's deadline (or a tenth of the time, if that is less), so
# that what was done by then arrives in time.
MARGIN_SECONDS = 0.25
# A worker that has not come back this long after the deadline hangs, and is replaced.
GRACE_SECONDS = 2.0
# A worker that has said nothing for so long is at something that takes long.
LONG_SECONDS = 0.02
# How often Ray is asked whether silent workers are alive, and new ones have started.
CHECK_SECONDS = 0.1
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
        self._folder = tempfile.TemporaryDirectory(prefix="fedavg-app-grid-")
        self._setting = Setting(
            RUN_ID, run_config, num_clients, state_memory, gpus_per_worker,
            self._folder.name, secrets.token_bytes(32),
        )  # fmt: skip
        self._on_interrupt: Any = None
        self._interrupted = False
        self._failed_starts = 0
        self._links = [Link(number, self._setting) for number in range(num_workers)]
        self._owner: dict[int, Link] = {}
        # Clients whose state is on its way to another worker: their jobs, and that worker.
        self._moving: dict[int, tuple[list[Job], Link]] = {}
        # Clients whose state changed since the last checkpoint, and the states for the next one.
        self._changed: set[int] = set()
        self._pickled: dict[int, bytes] = {}
        self._free: deque[Job] = deque()
        self._replies: dict[str, Message] = {}
        self._results: dict[Link, list[BatchResult]] = {}
        # What a message of each type took lately, in seconds.
        self._seconds: dict[str, float] = {}

    def __enter__(self) -> "RayGrid":
        """Return the grid; an interrupt ends what it is at from now on."""
        if threading.current_thread() is threading.main_thread():
            self._on_interrupt = signal.signal(signal.SIGINT, self._interrupt)
        return self

    def _interrupt(self, *_: object) -> None:
        """Raise, and again when a round goes on: where Ray calls back, exceptions are dropped."""
        self._interrupted = True
        raise KeyboardInterrupt

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the actors, and delete what they have on disk."""
        if self._on_interrupt is not None:
            signal.signal(signal.SIGINT, self._on_interrupt)
        for link in self._links:
            link.kill()
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
        while not all(link.ready for link in self._links):
            self.wait(CHECK_SECONDS)
        return [link.process_id for link in self._links]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Hand the messages to the workers; return the messages' ids."""
        pushed = list(messages)
        ids = [stamp(message) for message in pushed]
        due = time.monotonic() + self._timeout
        margin = min(MARGIN_SECONDS, self._timeout / 10)
        batch = Batch(due - margin, due, shared_records(pushed))
        self._keep_in_order({message.metadata.dst_node_id - FIRST_NODE_ID for message in pushed})
        for message in pushed:
            job = Job(message, batch)
            if job.partition in self._moving:
                self._moving[job.partition][0].append(job)
                continue
            owner = self._owner.get(job.partition)
            (self._free if owner is None else owner.queue).append(job)
        self._collect()  # one that died meanwhile is not handed anything
        self._even_out()
        self._hand_out()
        return ids

    def _keep_in_order(self, clients: set[int]) -> None:
        """See to it that who is still to do an earlier message does the next one after it.

        That is who was not waited for: it may have no state yet, and so no worker of its own.
        """
        for link in self._links:
            for request in link.waiting:
                if isinstance(request, Job) and request.partition in clients:
                    self._owner.setdefault(request.partition, link)
        for job in [job for job in self._free if job.partition in clients]:
            self._free.remove(job)
            owner = min(self._links, key=lambda link: len(link.queue))
            self._owner.setdefault(job.partition, owner).queue.append(job)

    def wait(self, seconds: float) -> None:
        """Return as soon as a worker has answered, after ``seconds`` at the latest.

        Raises:
            KeyboardInterrupt: There was an interrupt before, and it got lost.
        """
        if self._interrupted:
            raise KeyboardInterrupt
        starting = [link for link in self._links if not link.ready]
        if starting:
            seconds = min(seconds, CHECK_SECONDS)
            done, _ = ray.wait([link.call for link in starting], timeout=0)
            for link in starting:
                if link.call in done:
                    self._try(link, link.connect)
        answering = [link for link in self._links if link.ready]
        came = connection.wait([link.fileno() for link in answering], seconds)
        if not came and seconds >= CHECK_SECONDS:
            for link in answering:
                self._try(link, link.check)

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Return those replies that have come."""
        self._collect()
        self._hand_out()
        wanted = set(message_ids)
        found = [message_id for message_id in self._replies if message_id in wanted]
        return [self._replies.pop(message_id) for message_id in found]

    def evaluation(self, task: Task, data: Dataset, config: RunConfig) -> Evaluate:
        """Return what tests models on the workers, with the figures of `CentralTest`."""
        del task, config  # the workers have a run config of their own
        numbers = range(batch_count(len(data.test)))

        def test(arrays: ArrayRecord) -> tuple[float, float]:
            found: dict[int, BatchResult] = {}
            while lacking := [number for number in numbers if number not in found]:
                idle = self._idle()
                parts = {link: lacking[n :: len(idle)] for n, link in enumerate(idle)}
                for link, part in parts.items():
                    self._try(link, link.ask, "evaluate", data.options, arrays, part)
                while any(link in self._links and link not in self._results for link in parts):
                    self.wait(CHECK_SECONDS)
                    self._collect()
                for link, part in parts.items():
                    found |= zip(part, self._results.pop(link, []), strict=False)
            return combine(found[number] for number in numbers)

        return test

    def changed_states(self) -> dict[int, bytes | None]:
        """Return, by partition, the states changed since the last call, pickled; None for none."""
        changed, self._changed = self._changed, set()
        asked: dict[int, Link] = {}
        for client in changed & self._owner.keys():
            asked[client] = self._owner[client]
            self._try(asked[client], asked[client].ask, "pickled", client)
        # A worker that dies meanwhile has lost its clients' states: they have none.
        while any(c not in self._pickled and self._owner.get(c) is asked[c] for c in asked):
            self.wait(CHECK_SECONDS)
            self._collect()
        states, self._pickled = self._pickled, {}
        return {client: states.get(client) for client in changed}

    def restore_states(self, states: Mapping[int, bytes]) -> None:
        """Give clients the states that `changed_states` returned."""
        self.worker_process_ids()
        for number, (client, state) in enumerate(states.items()):
            link = self._links[number % len(self._links)]
            self._owner[client] = link
            self._try(link, link.ask, "adopt", client, pickle.loads(state))  # noqa: S301 - our own

    def _idle(self) -> list[Link]:
        """Return the workers that have nothing to do; wait until there is one."""
        while True:
            self._collect()
            self._replace_hanging()
            idle = [link for link in self._links if link.ready and not link.waiting]
            if idle:
                return idle
            self.wait(CHECK_SECONDS)

    def _even_out(self) -> None:
        """Move clients from workers that have too many of the jobs, where it pays."""
        loads = [len(link.waiting) + len(link.queue) for link in self._links]
        owned = [job for link in self._links for job in link.queue]
        seconds = self._expect(owned[0]) if owned else 0.0
        for source, target in moves(loads, len(self._free), seconds):
            owner, heir = self._links[source], self._links[target]
            if not owner.queue or not heir.ready:
                continue
            job = owner.queue.pop()
            others = (other for other in (*owner.queue, *owner.waiting) if isinstance(other, Job))
            if any(other.partition == job.partition for other in others):
                owner.queue.append(job)  # after those, where the state is
                continue
            self._moving[job.partition] = ([job], heir)
            self._try(owner, owner.ask, "release", job.partition)

    def _hand_out(self) -> None:
        """Send the workers as much as they should have at a time."""
        self._replace_hanging()
        ready = [link for link in self._links if link.ready]
        if not self._free and not any(link.queue for link in ready):
            self._ask_back()
            return
        free = shares(len(self._free), [len(link.waiting) + len(link.queue) for link in ready])
        for link, extra in zip(ready, free, strict=True):
            jobs: list[Job] = []
            for queue, most in ((link.queue, len(link.queue)), (self._free, extra)):
                room = window(self._expect(queue[0])) - len(link.waiting) if queue else 0
                while most and len(jobs) < room and queue:
                    if jobs and queue[0].batch is not jobs[0].batch:
                        break
                    jobs.append(queue.popleft())
                    most -= 1
            if jobs:
                self._try(link, link.hand, jobs)

    def _ask_back(self) -> None:
        """Ask a worker that is at something long for what an idle one could do."""
        busy = [
            link
            for link in self._links
            if len(link.waiting) > 1 and time.monotonic() - link.heard > LONG_SECONDS
        ]
        if not busy or all(link.waiting for link in self._links if link.ready):
            return
        link = max(busy, key=lambda link: len(link.waiting))
        last = link.waiting[-1]
        if isinstance(last, Job) and last.partition not in self._owner and not link.asked_back:
            self._try(link, link.ask_back)

    def _expect(self, job: Job) -> float:
        """Return what a job takes by experience with its kind; infinity where there is none."""
        return self._seconds.get(job.kind, math.inf)

    def _collect(self) -> None:
        """Take in what workers have answered."""
        for link in list(self._links):
            if link.ready:
                for request, answer in self._try(link, link.answers) or []:
                    self._take_in(link, request, answer)
                while link.queue and link.queue[-1].partition not in self._owner:
                    self._free.append(link.queue.pop())  # it was given back

    def _take_in(self, link: Link, request: Any, answer: tuple[bool, Any]) -> None:
        done, value = answer
        if isinstance(request, Job):
            if done:
                reply, stateful, seconds = value
                self._learn(request.kind, seconds)
                if stateful or request.partition in self._owner:
                    self._changed.add(request.partition)
                self._owner.pop(request.partition, None)
                if stateful:
                    self._owner[request.partition] = link
            else:
                reply = error_reply(request.message, value)
            self._keep(request, reply)
            return
        name, arguments = request
        if not done:
            raise RunError(f"worker {link.number} cannot {name}: {value}")
        if name == "evaluate":
            self._results[link] = value
        elif name == "pickled":
            self._pickled[arguments[0]] = value
        elif name == "release":
            jobs, heir = self._moving.pop(arguments[0])
            if heir not in self._links:
                heir = link
            self._owner[arguments[0]] = heir
            heir.queue.extend(jobs)
            self._try(heir, heir.ask, "adopt", arguments[0], value)

    def _learn(self, kind: str, seconds: float) -> None:
        self._seconds[kind] = (self._seconds.get(kind, seconds) + seconds) / 2

    def _keep(self, job: Job, reply: Message) -> None:
        """Keep a reply until it is pulled; nobody pulls one that comes too late."""
        stamp(reply)
        if time.monotonic() <= job.batch.due:
            self._replies[job.message_id] = reply

    def _replace_hanging(self) -> None:
        for link in list(self._links):
            first = link.waiting[0] if link.waiting else None
            if isinstance(first, Job) and time.monotonic() > first.batch.due + GRACE_SECONDS:
                self._replace(link, WorkerDiedError("a client hung beyond the round's deadline"))

    def _try(self, link: Link, action: Any, *arguments: Any) -> Any:
        """Do something with a worker; replace it where it turns out to be dead."""
        try:
            return action(*arguments)
        except WorkerDiedError as error:
            self._replace(link, error)
            return None

    def _replace(self, link: Link, error: WorkerDiedError) -> None:
        """Start a worker in the place of a dead one, whose clients have forgotten.

        The message it was at is answered with an error; those it had not begun go to others.

        Raises:
            RunError: Workers die as they start, again and again.
        """
        if not link.ready:
            self._failed_starts += 1
            if self._failed_starts > MOST_FAILED_STARTS:
                raise RunError(f"no worker can start: {error}")
        reason = f"worker {link.number} died: {error}"
        logger.warning("%s; it is replaced and its clients forget their state", reason)
        link.kill()
        self._links[link.number] = Link(link.number, self._setting)
        lost = {client for client, owner in self._owner.items() if owner is link}
        self._changed |= lost
        self._owner = {client: self._owner[client] for client in self._owner.keys() - lost}
        jobs = [request for request in link.waiting if isinstance(request, Job)]
        if jobs:
            self._keep(jobs[0], error_reply(jobs[0].message, reason))
        released = [
            job
            for request in link.waiting
            if not isinstance(request, Job) and request[0] == "release"
            for job in self._moving.pop(request[1][0])[0]
        ]
        self._free.extend([*jobs[1:], *released, *link.queue])
