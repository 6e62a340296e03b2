"""Which node is which client.

Node ids are random, or belong to a device's key, and only a node knows its partition. Seeded
sampling of clients needs the map from one to the other: every node is queried once, when it
connects.
"""

import logging
import time
from collections.abc import Iterable

from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from fedavg_app.errors import ConfigError, RunError
from fedavg_app.node_config import PARTITION_ID
from fedavg_app.server.polling import poll_replies, send
from strategies.reply_validation import error_reason

logger = logging.getLogger("fedavg_app.nodes")

# SuperNodes register one after the other; this long after the last one no more are expected.
QUIET_SECONDS = 3.0
QUERY_TIMEOUT = 600.0
POLL_SECONDS = 0.05


class NodeRegistry:
    """The connected nodes, by the client that each is.

    Args:
        grid: Reaches the nodes.
        num_clients: K; nodes with a partition beyond are not used.

    Attributes:
        num_clients: K.
        by_client: The node id of every client that is connected.
    """

    def __init__(self, grid: Grid, num_clients: int) -> None:
        self.by_client: dict[int, int] = {}
        self._grid, self.num_clients = grid, num_clients
        self._connected: list[int] = []
        self._queried: dict[str, int] = {}  # node by the id of its unanswered query
        self._query_errors: list[str] = []

    @property
    def clients(self) -> list[int]:
        """The numbers of the connected clients, rising."""
        return sorted(self.by_client)

    def wait_for_start(self, min_nodes: int = 0, quiet_seconds: float = QUIET_SECONDS) -> None:
        """Wait for the nodes that a run begins with.

        Args:
            min_nodes: How many; 0 means one per client. The others may connect later.
            quiet_seconds: How long to wait for another one when there are too few.

        Raises:
            ConfigError: Fewer nodes than that are connected.
            RunError: Two nodes have one partition, or too few have a partition below K.
        """
        required = min_nodes or self.num_clients
        self._wait_for_nodes(required, quiet_seconds)
        if len(self._connected) < required:
            key = "min-nodes" if min_nodes else "num-clients"
            raise ConfigError(
                key,
                required,
                f"there are only {len(self._connected)} SuperNodes; for a simulation add "
                f'--federation-config "num-supernodes={self.num_clients} '
                'client-resources-num-cpus=1", '
                "otherwise start more SuperNodes or give fewer clients",
            )
        # All are queried. Those required are waited for, then for a while the others.
        for enough, seconds in ((required, QUERY_TIMEOUT), (len(self._connected), quiet_seconds)):
            for replies in poll_replies(self._grid, list(self._queried), seconds):
                for reply in sorted(replies, key=lambda reply: reply.metadata.src_node_id):
                    if conflict := self._register(reply):
                        before, node, client = conflict
                        raise RunError(
                            f"nodes {before} and {node} both have {PARTITION_ID}={client}; "
                            "give each SuperNode a partition of its own with --node-config"
                        )
                if len(self.by_client) >= enough:
                    break
        if len(self.by_client) < required:
            raise RunError(self._missing_partition())
        if len(self._connected) > self.num_clients:
            logger.warning(
                "%d of %d nodes take no part: num-clients is %d",
                len(self._connected) - self.num_clients,
                len(self._connected),
                self.num_clients,
            )

    def update(self) -> None:
        """Take note of nodes that connected or disconnected, without waiting.

        New nodes are queried; their clients count as connected once they have answered.
        """
        found = sorted(self._grid.get_node_ids())
        if found != self._connected:
            came, gone = set(found) - set(self._connected), set(self._connected) - set(found)
            for client, node in list(self.by_client.items()):
                if node in gone:
                    logger.warning("node %d, client %d, has disconnected", node, client)
                    del self.by_client[client]
            self._queried = {key: node for key, node in self._queried.items() if node not in gone}
            self._connected = found
            self._query(came)
        if self._queried:
            for reply in self._grid.pull_messages(list(self._queried)):
                if conflict := self._register(reply):
                    before, node, client = conflict
                    logger.warning("client %d is now node %d, not %d", client, node, before)

    def wait_for_any(self, seconds: float) -> None:
        """Update until at least one client is connected.

        Raises:
            RunError: There is none after ``seconds``.
        """
        self.update()
        deadline = time.monotonic() + seconds
        while not self.by_client:
            if time.monotonic() >= deadline:
                fix = "start SuperNodes, or give a longer node-timeout"
                raise RunError(f"no SuperNode was connected for {seconds:g} s; {fix}")
            time.sleep(POLL_SECONDS)
            self.update()

    def _wait_for_nodes(self, required: int, quiet_seconds: float) -> None:
        """Query nodes as they connect, until there are enough or none has come for a while."""
        last_change = time.monotonic()
        while True:
            found = sorted(self._grid.get_node_ids())
            if len(found) != len(self._connected):
                last_change = time.monotonic()
            came = set(found) - set(self._connected)
            self._connected = found
            self._query(came)
            if len(found) >= required or time.monotonic() - last_change >= quiet_seconds:
                return
            time.sleep(POLL_SECONDS)

    def _query(self, nodes: Iterable[int]) -> None:
        ordered = sorted(nodes)
        queries = [
            Message(RecordDict(), dst_node_id=node, message_type=MessageType.QUERY)
            for node in ordered
        ]
        if queries:
            ids = send(self._grid, queries)
            self._queried |= {key: node for key, node in zip(ids, ordered, strict=True) if key}

    def _register(self, reply: Message) -> tuple[int, int, int] | None:
        """Note a node's partition; return (other node, node, partition) if it was another's."""
        node = self._queried.pop(reply.metadata.reply_to_message_id)
        if reply.has_error():
            self._query_errors.append(f"node {node}: {error_reason(reply.error)}")
            return None
        record = reply.content.config_records.get("node", ConfigRecord())
        client = record.get(PARTITION_ID)
        if isinstance(client, bool) or not isinstance(client, int):
            self._query_errors.append(f"node {node}: no {PARTITION_ID}")
        elif 0 <= client < self.num_clients:
            before = self.by_client.get(client, node)
            self.by_client[client] = node
            if before != node:
                return before, node, client
        return None

    def _missing_partition(self) -> str:
        missing = [number for number in range(self.num_clients) if number not in self.by_client]
        error = f"; {self._query_errors[0]}" if self._query_errors else ""
        return (
            f"no node has {PARTITION_ID}={missing[0]} ({len(missing)} of {self.num_clients} "
            f"missing{error}); start SuperNodes with "
            f'--node-config "{PARTITION_ID}={missing[0]} num-partitions={self.num_clients}"'
        )
