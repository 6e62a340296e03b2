"""Flower's `Grid` on Ray actors that live as long as the run.

A partition belongs to one actor (its number modulo the number of actors), so a client's state never
travels; a round costs one Ray call per actor. An actor that dies is replaced: its messages of the
moment are answered with an error, and its clients have forgotten their state, exactly as those of a
SuperNode that was restarted.
"""

import logging
from collections import defaultdict
from collections.abc import Iterable
from types import TracebackType
from typing import Any

import ray
from flwr.app import Message, UserConfig

from fedavg_app.engine.worker import Worker
from fedavg_app.internals import (
    FIRST_NODE_ID,
    BaseGrid,
    error_reply,
    identify_server,
    stamp,
)

logger = logging.getLogger("fedavg_app.engine")

RUN_ID = 1
# How long one look for replies waits for the first to come.
PULL_SECONDS = 0.1


class RayGrid(BaseGrid):
    """A grid whose nodes are ``num_clients`` virtual clients on ``num_workers`` Ray actors.

    A context manager: leaving it ends the actors. Ray must have been started.

    Args:
        run_config: What clients see as their context's run config.
        num_clients: K; node ``FIRST_NODE_ID + k`` holds partition k.
        num_workers: How many actors, each on one CPU.
        gpus_per_worker: The share of a GPU that each actor reserves.
    """

    def __init__(
        self,
        run_config: UserConfig,
        num_clients: int,
        num_workers: int,
        gpus_per_worker: float = 0.0,
    ) -> None:
        identify_server(RUN_ID)
        self._num_clients = num_clients
        self._actor = ray.remote(Worker).options(num_cpus=1, num_gpus=gpus_per_worker)
        self._arguments = (RUN_ID, run_config, num_clients)
        self._workers = [self._start() for _ in range(num_workers)]
        self._running: dict[Any, tuple[int, list[Message]]] = {}

    def __enter__(self) -> "RayGrid":
        """Return the grid."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the actors."""
        for worker in self._workers:
            ray.kill(worker)

    def get_node_ids(self) -> list[int]:
        """Return one node id per virtual client."""
        return list(range(FIRST_NODE_ID, FIRST_NODE_ID + self._num_clients))

    def worker_process_ids(self) -> list[int]:
        """Return the actors' process ids."""
        return [ray.get(worker.process_id.remote()) for worker in self._workers]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Hand each actor the messages of its clients in one call; return the messages' ids."""
        batches: defaultdict[int, list[Message]] = defaultdict(list)
        ids = []
        for message in messages:
            ids.append(stamp(message))
            batches[self._partition(message) % len(self._workers)].append(message)
        for owner, batch in batches.items():
            numbers = [self._partition(message) for message in batch]
            future = self._workers[owner].handle.remote(numbers, batch)
            self._running[future] = (owner, batch)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Return the replies that have come, waiting a moment for the first."""
        wanted = set(message_ids)
        futures = [
            future
            for future, (_, batch) in self._running.items()
            if any(message.metadata.message_id in wanted for message in batch)
        ]
        if not futures:
            return []
        finished, _ = ray.wait(futures, num_returns=1, timeout=PULL_SECONDS)
        return [reply for future in finished for reply in self._collect(future)]

    def _collect(self, future: Any) -> list[Message]:
        owner, batch = self._running.pop(future)
        try:
            replies: list[Message] = ray.get(future)
        except ray.exceptions.RayError as error:
            reason = f"worker {owner} failed: {str(error).splitlines()[0]}"
            logger.warning("%s; it is replaced and its clients forget their state", reason)
            self._workers[owner] = self._start()
            return [error_reply(message, reason) for message in batch]
        for reply in replies:
            stamp(reply)
        return replies

    def _partition(self, message: Message) -> int:
        return message.metadata.dst_node_id - FIRST_NODE_ID

    def _start(self) -> Any:
        return self._actor.remote(*self._arguments)
