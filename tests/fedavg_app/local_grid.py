"""A grid that runs the real ClientApp in this process, and clients that misbehave on demand."""

from collections.abc import Callable, Iterable

from flwr.app import Context, Message, RecordDict

from fedavg_app.client_app import app
from fedavg_app.internals import BaseGrid, error_reply, stamp

Tamper = Callable[[Message], Message | None]


class LocalGrid(BaseGrid):
    """Nodes 1000, 1007, 1014, ... hold partitions K-1, K-2, ..., 0; replies come in odd order.

    ``tamper`` maps a partition to what becomes of its training replies (None: it never answers).
    """

    def __init__(self, run_config: dict, num_nodes: int, tamper: dict[int, Tamper] | None = None):
        self.contexts = {
            1000 + 7 * i: Context(
                run_id=1,
                node_id=1000 + 7 * i,
                node_config={"partition-id": num_nodes - 1 - i, "num-partitions": num_nodes},
                state=RecordDict(),
                run_config=run_config,
            )
            for i in range(num_nodes)
        }
        self.tamper = tamper or {}
        self.log: list[tuple[str, int]] = []
        self._replies: dict[str, Message] = {}

    def partition(self, node: int) -> int:
        return self.contexts[node].node_config["partition-id"]

    def get_node_ids(self) -> list[int]:
        return list(self.contexts)

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        ids = []
        for message in messages:
            ids.append(stamp(message))
            node = message.metadata.dst_node_id
            self.log.append((message.metadata.message_type, self.partition(node)))
            try:
                reply = app(message, self.contexts[node])
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
