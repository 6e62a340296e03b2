"""Which worker handles which message.

A client that has a state belongs to the worker that keeps it; the others may be handled by any. A
worker gets work for a short time at once, so that what it has not begun may still go to another.
"""

import logging
import math
import time
from collections import deque
from collections.abc import Sequence, Set

from flwr.app import Message

from fedavg_app.errors import RunError
from fedavg_app.flower_internals import assign_message_id, error_reply
from fedavg_app.ray_engine.client_call import HandledMessage
from fedavg_app.ray_engine.load_balancing import moves, share_out, window_size
from fedavg_app.ray_engine.pending_messages import MessageBatch, PendingMessage
from fedavg_app.ray_engine.request_queue import Answer, WorkerError
from fedavg_app.ray_engine.worker import WorkerSettings
from fedavg_app.ray_engine.worker_handle import Request, WorkerHandle
from fedavg_app.ray_engine.worker_pool import CHECK_SECONDS, WorkerPool

logger = logging.getLogger("fedavg_app.ray_engine")

# A worker without activity for this long is handling a message that takes long.
LONG_SECONDS = 0.02


class Dispatcher:
    """Distributes messages on workers and collects their answers.

    Args:
        num_workers: How many workers there are.
        settings: What they are told.

    Attributes:
        pool: The workers.
        owner: By partition, the worker that keeps the client's state.
        replies: The replies that have come and were not taken, by the id of their message.
        answers: The last answer to a request that is not a message, by worker and request.
        changed: The clients whose states changed since the set was last emptied.
    """

    def __init__(self, num_workers: int, settings: WorkerSettings) -> None:
        self.pool = WorkerPool(num_workers, settings, on_death=self._handle_death)
        self.owner: dict[int, WorkerHandle] = {}
        self.replies: dict[str, Message] = {}
        self.answers: dict[tuple[WorkerHandle, str, object], Answer] = {}
        self.changed: set[int] = set()
        self._free: deque[PendingMessage] = deque()
        # Clients whose state is on its way to another worker: their messages, and that worker.
        self._moving: dict[int, tuple[list[PendingMessage], WorkerHandle]] = {}
        # What a message of each type took lately, in seconds.
        self._seconds: dict[str, float] = {}

    def submit(self, messages: Sequence[Message], batch: MessageBatch) -> None:
        """Queue messages that were pushed together, and send what workers should have now."""
        pending = [PendingMessage(message, batch) for message in messages]
        self._keep_order({one.partition for one in pending})
        for one in pending:
            if one.partition in self._moving:
                self._moving[one.partition][0].append(one)
                continue
            owner = self.owner.get(one.partition)
            (self._free if owner is None else owner.queue).append(one)
        self.receive()  # a worker that died meanwhile is not sent anything
        self._rebalance()
        self.send_queued()

    def receive(self) -> None:
        """Take in what workers have answered."""
        for worker in self.pool.ready:
            for request, answer in self.pool.attempt(worker, worker.receive) or []:
                self._handle_answer(worker, request, answer)
            while worker.queue and worker.queue[-1].partition not in self.owner:
                self._free.append(worker.queue.pop())  # it was returned

    def send_queued(self) -> None:
        """Send the workers as many messages as they should have at a time."""
        self.pool.replace_hanging()
        ready = self.pool.ready
        if not self._free and not any(worker.queue for worker in ready):
            self._take_back()
            return
        free = share_out(len(self._free), [worker.load for worker in ready])
        for worker, extra in zip(ready, free, strict=True):
            chosen: list[PendingMessage] = []
            for queue, most in ((worker.queue, len(worker.queue)), (self._free, extra)):
                room = self._window_size(queue[0]) - len(worker.unanswered) if queue else 0
                while most and len(chosen) < room and queue:
                    if chosen and queue[0].batch is not chosen[0].batch:
                        break
                    chosen.append(queue.popleft())
                    most -= 1
            if chosen:
                self.pool.attempt(worker, worker.send_messages, chosen)

    def idle_workers(self) -> list[WorkerHandle]:
        """Return the workers that have nothing to do; wait until there is one."""
        while True:
            self.receive()
            self.pool.replace_hanging()
            idle = [worker for worker in self.pool.ready if not worker.unanswered]
            if idle:
                return idle
            self.pool.wait(CHECK_SECONDS)

    def any_moving(self, clients: Set[int]) -> bool:
        """Return whether a state of these clients is on its way to another worker."""
        return not self._moving.keys().isdisjoint(clients)

    def _keep_order(self, clients: set[int]) -> None:
        """Let clients with an earlier message handle the next one after it.

        These are clients whose reply was not waited for. They may have no state yet, and so no
        worker of their own.
        """
        for worker in self.pool.workers:
            for request in worker.unanswered:
                if isinstance(request, PendingMessage) and request.partition in clients:
                    self.owner.setdefault(request.partition, worker)
        for pending in [one for one in self._free if one.partition in clients]:
            self._free.remove(pending)
            owner = min(self.pool.workers, key=lambda worker: len(worker.queue))
            self.owner.setdefault(pending.partition, owner).queue.append(pending)

    def _rebalance(self) -> None:
        """Move clients' states away from workers that have too many of the messages."""
        loads = [worker.load for worker in self.pool.workers]
        queued = [pending for worker in self.pool.workers for pending in worker.queue]
        seconds = self._expected_seconds(queued[0]) if queued else 0.0
        for source_number, target_number in moves(loads, len(self._free), seconds):
            source, target = self.pool.workers[source_number], self.pool.workers[target_number]
            if not source.queue or not target.ready:
                continue
            pending = source.queue.pop()
            others = (*source.queue, *source.unanswered)
            if any(
                isinstance(other, PendingMessage) and other.partition == pending.partition
                for other in others
            ):
                source.queue.append(pending)  # after those, where the state is
                continue
            self._moving[pending.partition] = ([pending], target)
            self.pool.attempt(source, source.request, "pop_state", pending.partition)

    def _take_back(self) -> None:
        """Ask a worker that is busy for long for a message that an idle one could handle."""
        now = time.monotonic()
        busy = [
            worker
            for worker in self.pool.workers
            if len(worker.unanswered) > 1  # one of them is not begun
            and now - worker.last_activity > LONG_SECONDS
        ]
        if not busy or all(worker.unanswered for worker in self.pool.ready):
            return
        worker = max(busy, key=lambda worker: len(worker.unanswered))
        last = worker.unanswered[-1]
        if (
            isinstance(last, PendingMessage)
            and last.partition not in self.owner
            and not worker.return_requested
        ):
            self.pool.attempt(worker, worker.request_return)

    def _handle_answer(self, worker: WorkerHandle, request: Request, answer: Answer) -> None:
        if isinstance(request, PendingMessage):
            if isinstance(answer, HandledMessage):
                self._record_seconds(request.message_type, answer.seconds)
                if answer.has_state or request.partition in self.owner:
                    self.changed.add(request.partition)
                self.owner.pop(request.partition, None)
                if answer.has_state:
                    self.owner[request.partition] = worker
                self._keep_reply(request, answer.reply)
            else:
                self._keep_reply(request, error_reply(request.message, answer.traceback))
            return
        name, arguments = request
        if isinstance(answer, WorkerError):
            logger.error("worker %d raised:\n%s", worker.number, answer.traceback.rstrip())
            raise RunError(f"worker {worker.number} cannot {name}: {answer.reason}")
        if name == "pop_state":
            messages, target = self._moving.pop(arguments[0])
            if target not in self.pool.workers:
                target = worker
            self.owner[arguments[0]] = target
            target.queue.extend(messages)
            self.pool.attempt(target, target.request, "put_state", arguments[0], answer)
        elif name == "pickled_state":
            self.answers[worker, name, arguments[0]] = answer
        elif name == "evaluate":
            self.answers[worker, name, None] = answer

    def _window_size(self, pending: PendingMessage) -> int:
        return window_size(self._expected_seconds(pending))

    def _expected_seconds(self, pending: PendingMessage) -> float:
        """Return what a message took lately by its type; infinity where there was none."""
        return self._seconds.get(pending.message_type, math.inf)

    def _record_seconds(self, message_type: str, seconds: float) -> None:
        self._seconds[message_type] = (self._seconds.get(message_type, seconds) + seconds) / 2

    def _keep_reply(self, pending: PendingMessage, reply: Message) -> None:
        """Keep a reply until it is taken; nobody takes one that comes too late."""
        assign_message_id(reply)
        if time.monotonic() <= pending.batch.due:
            self.replies[pending.message_id] = reply

    def _handle_death(self, worker: WorkerHandle, reason: str) -> None:
        """Answer the message that a dead worker was handling with an error.

        Its clients lose their states; the messages it had not begun go to other workers.
        """
        lost = {client for client, owner in self.owner.items() if owner is worker}
        self.changed |= lost
        self.owner = {client: self.owner[client] for client in self.owner.keys() - lost}
        messages = [one for one in worker.unanswered if isinstance(one, PendingMessage)]
        if messages:
            self._keep_reply(messages[0], error_reply(messages[0].message, reason))
        moving = [
            message
            for request in worker.unanswered
            if not isinstance(request, PendingMessage) and request[0] == "pop_state"
            for message in self._moving.pop(request[1][0])[0]
        ]
        self._free.extend([*messages[1:], *moving, *worker.queue])
