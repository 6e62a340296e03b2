"""A grid that runs the real ClientApp in this process."""

import copy
from collections.abc import Callable, Iterable

from flwr.app import Context, Message, RecordDict

from fedavg_app.client_app import app
from fedavg_app.flower_internals import BaseGrid, assign_message_id, error_reply, identify_server

Tamper = Callable[[Message], Message | None]


class LocalGrid(BaseGrid):
    """Nodes 1000, 1007, 1014, ... have partitions K-1, K-2, ..., 0; the last sent answers first.

    ``tamper`` has, by partition, a function that changes its training replies (None: no reply).
    """

    def __init__(self, run_config: dict, num_nodes: int, tamper: dict[int, Tamper] | None = None):
        identify_server(1)  # as the engines do
        self.contexts = {
            1000 + 7 * i: Context(
                1, 1000 + 7 * i, {"partition-id": num_nodes - 1 - i, "num-partitions": num_nodes},
                RecordDict(), run_config,
            )
            for i in range(num_nodes)
        }  # fmt: skip
        self.tamper = tamper or {}
        self.log: list[tuple[str, int]] = []  # every message's type and partition
        self._replies: dict[str, Message] = {}

    def partition(self, node: int) -> int:
        return self.contexts[node].node_config["partition-id"]

    def node(self, partition: int) -> int:
        return next(node for node in self.contexts if self.partition(node) == partition)

    def get_node_ids(self) -> list[int]:
        return list(self.contexts)

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        ids = []
        for message in messages:
            ids.append(assign_message_id(message))
            node = message.metadata.dst_node_id
            self.log.append((message.metadata.message_type, self.partition(node)))
            try:
                # A copy, as over a connection: client mods replace a message's content.
                reply = app(copy.copy(message), self.contexts[node])
            except Exception as error:
                reply = error_reply(message, f"Traceback\n  ...\n{type(error).__name__}: {error}")
            if message.metadata.message_type.startswith("train"):
                reply = self.tamper.get(self.partition(node), lambda reply: reply)(reply)
            if reply is not None:
                self._replies[message.metadata.message_id] = reply
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        found = [i for i in message_ids if i in self._replies]
        # One at a time, the last sent first: aggregation must not depend on arrival.
        return [self._replies.pop(found[-1])] if found else []
