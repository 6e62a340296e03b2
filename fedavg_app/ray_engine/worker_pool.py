"""The workers of a grid: started, asked whether they are alive, and replaced when they die."""

import logging
import time
from collections.abc import Callable
from multiprocessing import connection
from typing import ParamSpec, TypeVar

import ray

from fedavg_app.errors import RunError
from fedavg_app.ray_engine.pending_messages import PendingMessage
from fedavg_app.ray_engine.worker import WorkerSettings
from fedavg_app.ray_engine.worker_handle import WorkerDiedError, WorkerHandle

P = ParamSpec("P")
R = TypeVar("R")

logger = logging.getLogger("fedavg_app.ray_engine")

# A worker that has not come back this long after the deadline hangs, and is replaced.
GRACE_SECONDS = 2.0
# How often Ray is asked whether silent workers are alive, and new ones have started.
CHECK_SECONDS = 0.1
# How often workers that die before they have started are replaced.
MAX_FAILED_STARTS = 3


class WorkerPool:
    """The workers of a grid.

    Args:
        num_workers: How many there are.
        settings: What they are told.
        on_death: Called with a worker that has died and was replaced, and the reason.

    Attributes:
        workers: The workers by number.
    """

    def __init__(
        self,
        num_workers: int,
        settings: WorkerSettings,
        on_death: Callable[[WorkerHandle, str], None],
    ) -> None:
        self._settings, self._on_death = settings, on_death
        self._failed_starts = 0
        self.workers = [WorkerHandle(number, settings) for number in range(num_workers)]

    @property
    def ready(self) -> list[WorkerHandle]:
        """The workers that have started."""
        return [worker for worker in self.workers if worker.ready]

    def wait(self, seconds: float) -> None:
        """Return as soon as a worker has answered, after ``seconds`` at the latest."""
        starting = [worker for worker in self.workers if not worker.ready]
        if starting:
            seconds = min(seconds, CHECK_SECONDS)
            done, _ = ray.wait([worker.call for worker in starting], timeout=0)
            for worker in starting:
                if worker.call in done:
                    self.attempt(worker, worker.connect)
        ready = self.ready
        answering = connection.wait([worker.fileno() for worker in ready], seconds)
        if not answering and seconds >= CHECK_SECONDS:
            for worker in ready:
                self.attempt(worker, worker.check_alive)

    def attempt(
        self, worker: WorkerHandle, action: Callable[P, R], *args: P.args, **kwargs: P.kwargs
    ) -> R | None:
        """Return what the action on a worker returns; replace the worker if it has died.

        Raises:
            RunError: Workers die as they start, again and again.
        """
        try:
            return action(*args, **kwargs)
        except WorkerDiedError as error:
            self._replace(worker, error)
            return None

    def replace_hanging(self) -> None:
        """Replace the workers whose client has not come back at the round's deadline."""
        for worker in list(self.workers):
            first = worker.unanswered[0] if worker.unanswered else None
            overdue = time.monotonic() - GRACE_SECONDS
            if isinstance(first, PendingMessage) and overdue > first.batch.due:
                self._replace(worker, WorkerDiedError("a client hung beyond the round's deadline"))

    def kill(self) -> None:
        """End all workers."""
        for worker in self.workers:
            worker.kill()

    def _replace(self, worker: WorkerHandle, error: WorkerDiedError) -> None:
        if worker not in self.workers:
            return  # it was replaced before
        if not worker.ready:
            self._failed_starts += 1
            if self._failed_starts > MAX_FAILED_STARTS:
                raise RunError(f"no worker can start: {error}")
        reason = f"worker {worker.number} died: {error}"
        logger.warning("%s; it is replaced and its clients lose their state", reason)
        worker.kill()
        self.workers[worker.number] = WorkerHandle(worker.number, self._settings)
        self._on_death(worker, reason)
