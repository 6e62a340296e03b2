"""Which node is which client.

Node ids are random, or belong to a device's key, and only a node knows its partition. Seeded
sampling of clients needs the map from one to the other: every node is queried when it connects,
and before each round while it cannot be used. A partition belongs to the node that named it first,
for as long as that is connected.
"""

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from fedavg_app.errors import ConfigError, RunError
from fedavg_app.node_config import (
    DATA_DIGEST,
    OWN_DATA,
    OWN_EXAMPLES,
    PARTITION_DIGEST,
    PARTITION_ID,
)
from fedavg_app.partitioning.partitions import DataDigests
from fedavg_app.server.network_grid import is_network_grid
from fedavg_app.server.polling import MAX_PAUSE, PAUSE_GROWTH, send, wait
from strategies.reply_validation import CONFIG, error_reason

logger = logging.getLogger("fedavg_app.nodes")

# SuperNodes register one after the other; this long after the last one no more are expected.
QUIET_SECONDS = 3.0
QUERY_TIMEOUT = 600.0
POLL_SECONDS = 0.05


def count_nodes(grid: Grid, quiet_seconds: float) -> int:
    """Return how many nodes are connected, once no other has come for ``quiet_seconds``.

    A simulation's nodes are all there from its start.

    Raises:
        ConfigError: There is none.
    """
    nodes, last_change = len(list(grid.get_node_ids())), time.monotonic()
    while is_network_grid(grid) and time.monotonic() < last_change + quiet_seconds:
        wait(grid, min(MAX_PAUSE, quiet_seconds))
        found = len(list(grid.get_node_ids()))
        if found != nodes:
            nodes, last_change = found, time.monotonic()
    if not nodes:
        raise ConfigError("num-clients", 0, "no SuperNode is connected; start some first")
    return nodes


@dataclass(frozen=True)
class DataCheck:
    """How the nodes' data are compared with the server's.

    Attributes:
        settings: What messages tell clients, with which they load the shared data set.
        compare: Raises a `ConfigError` where a node's digests are not the server's.
    """

    settings: ConfigRecord
    compare: Callable[[DataDigests], None]


class NodeRegistry:
    """The connected nodes, by the client that each is.

    Args:
        grid: Reaches the nodes.
        num_clients: K; nodes with a partition beyond are not used.
        check: Compares the data of nodes that have none of their own with the server's; None leaves
            it out, and the nodes need not load them to answer.

    Attributes:
        by_client: The node id of every client that is connected.
        own_data: For each client that has data of its own, their fingerprint and the number of
            training examples.
    """

    def __init__(self, grid: Grid, num_clients: int, check: DataCheck | None = None) -> None:
        self._check = check
        self.by_client: dict[int, int] = {}
        self.own_data: dict[int, tuple[str, int]] = {}
        self._grid, self.num_clients = grid, num_clients
        self._connected: list[int] = []
        self._asked: dict[int, float] = {}  # of these, when they were sent their query
        self._reasons: dict[int, str] = {}  # why connected nodes take no part
        self._queried: dict[str, int] = {}  # node by the id of its unanswered query
        self._query_errors: list[str] = []
        self._waiting: dict[int, int] = {}  # by node, the client that another node is
        self._refusals: dict[int, str] = {}
        self._last_node: dict[int, int] = {}  # by client, connected or not
        self._own_data: dict[int, tuple[str, int]] = {}  # by node
        self._replaced: list[int] = []

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
            RunError: Too few have a partition of their own below K.
        """
        required = min_nodes or self.num_clients
        if not self._wait_for_clients(required, quiet_seconds, QUERY_TIMEOUT):
            if len(self._connected) >= required:
                raise RunError(self._missing_partition())
            key = "min-nodes" if min_nodes else "num-clients"
            raise ConfigError(
                key,
                required,
                f"there are only {len(self._connected)} SuperNodes; for a simulation add "
                f'--federation-config "num-supernodes={self.num_clients} '
                'client-resources-num-cpus=1", '
                "otherwise start more SuperNodes or give fewer clients",
            )
        # The others that are there already are waited for as well, but not for long.
        self._wait_for_clients(len(self._connected), 0.0, quiet_seconds)
        if len(self._connected) > self.num_clients:
            logger.warning(
                "%d of %d nodes take no part: num-clients is %d",
                len(self._connected) - self.num_clients,
                len(self._connected),
                self.num_clients,
            )

    def update(self) -> None:
        """Update the nodes that connected or disconnected, without waiting.

        New nodes are queried; their clients count as connected once they have answered.
        """
        found = sorted(self._grid.get_node_ids())
        gone, self._connected = set(self._connected) - set(found), found
        for node in gone:
            self._reasons.pop(node, None)
        self._forget_queries(gone)
        self._query(set(found) - self._asked.keys())
        self._remove(gone)
        while replies := list(self._grid.pull_messages(self._queried.keys())):
            for reply in sorted(replies, key=lambda reply: reply.metadata.src_node_id):
                self._register(reply)

    def take_refusals(self) -> dict[int, str]:
        """Return why nodes were refused since the last call, by node."""
        refusals, self._refusals = self._refusals, {}
        return refusals

    def take_replaced(self) -> list[int]:
        """Return the nodes whose clients have become other nodes since the last call."""
        replaced, self._replaced = self._replaced, []
        return replaced

    def wait_for_any(self, seconds: float) -> None:
        """Update until at least one client is connected.

        Nodes that take no part are queried again, and those that have not answered for long: the
        device may have been put right, or have restarted with the query in hand.

        Raises:
            RunError: There is none after ``seconds``.
        """
        late = time.monotonic() - QUERY_TIMEOUT
        unanswered = set(self._queried.values())
        overdue = {node for node in unanswered if self._asked[node] < late}
        self._forget_queries(overdue | (self._reasons.keys() - unanswered))
        if not self._wait_for_clients(1, seconds, seconds):
            fix = "start SuperNodes, or give a longer node-timeout"
            raise RunError(f"no SuperNode was connected for {seconds:g} s; {fix}")

    def _wait_for_clients(self, required: int, quiet: float, unanswered: float) -> bool:
        """Update until so many clients are connected; return whether they are.

        Args:
            required: How many.
            quiet: Seconds without any change after which no more are expected.
            unanswered: The same, where a node has not answered its query yet.
        """
        before, last_change, pause = (0, 0), time.monotonic(), POLL_SECONDS
        while True:
            self.update()
            if len(self.by_client) >= required:
                return True
            seen = len(self._connected), len(self._queried)
            if seen != before:
                before, last_change, pause = seen, time.monotonic(), POLL_SECONDS
            can_be_enough = self._queried and len(self._connected) >= required
            patience = unanswered if can_be_enough else quiet
            left = last_change + patience - time.monotonic()
            if left <= 0:
                return False
            wait(self._grid, min(pause, left))
            pause = min(pause * PAUSE_GROWTH, MAX_PAUSE)

    def _remove(self, gone: set[int]) -> None:
        """Forget nodes that have disconnected; their clients go to the nodes that wait for them."""
        for node in gone & self._waiting.keys():
            del self._waiting[node]
        for client, node in list(self.by_client.items()):
            if node in gone:
                logger.warning("node %d, client %d, has disconnected", node, client)
                del self.by_client[client]
                waiting_nodes = [node for node, wanted in self._waiting.items() if wanted == client]
                for successor in waiting_nodes[:1]:
                    del self._waiting[successor]
                    self._assign(client, successor)
                    logger.warning("client %d is now node %d, not %d", client, successor, node)

    def _forget_queries(self, nodes: set[int]) -> None:
        self._asked = {node: sent for node, sent in self._asked.items() if node not in nodes}
        self._queried = {key: node for key, node in self._queried.items() if node not in nodes}

    def _query(self, nodes: Iterable[int]) -> None:
        ordered = sorted(nodes)
        settings = self._check.settings if self._check else None
        queries = [
            Message(
                RecordDict({CONFIG: settings} if settings else {}),
                dst_node_id=node,
                message_type=MessageType.QUERY,
            )
            for node in ordered
        ]
        if queries:
            ids = send(self._grid, queries)
            sent = {key: node for key, node in zip(ids, ordered, strict=True) if key}
            self._queried |= sent
            self._asked |= dict.fromkeys(sent.values(), time.monotonic())

    def _register(self, reply: Message) -> None:
        """Record a node's partition; the node is refused if that is another live node's."""
        node = self._queried.pop(reply.metadata.reply_to_message_id)
        self._waiting.pop(node, None)
        if reply.has_error():
            reason = error_reason(reply.error)
            if self._leave_out(node, reason):
                self._query_errors.append(f"node {node}: {reason}")
            return
        record = reply.content.config_records.get("node", ConfigRecord())
        client = record.get(PARTITION_ID)
        if isinstance(client, bool) or not isinstance(client, int):
            self._query_errors.append(f"node {node}: no {PARTITION_ID}")
        elif 0 <= client < self.num_clients and self._has_same_data(node, record):
            fingerprint, examples = record.get(OWN_DATA), record.get(OWN_EXAMPLES)
            self._own_data.pop(node, None)
            if isinstance(fingerprint, str) and isinstance(examples, int):
                self._own_data[node] = fingerprint, examples
            holder = self.by_client.get(client, node)
            if holder == node:
                self._assign(client, node)
            else:
                self._waiting[node] = client
                reason = (
                    f"node {holder} has {PARTITION_ID}={client} already; "
                    "give each SuperNode a partition of its own with --node-config"
                )
                if self._leave_out(node, reason):
                    self._refusals[node] = reason

    def _has_same_data(self, node: int, record: ConfigRecord) -> bool:
        """Return whether a node's shared data are the server's; a device with others is left out.

        Raises:
            ConfigError: They are not, in a simulation.
        """
        data, rows = record.get(DATA_DIGEST), record.get(PARTITION_DIGEST)
        if self._check is None or not isinstance(data, str) or not isinstance(rows, str):
            return True
        try:
            self._check.compare(DataDigests(data, rows))
        except ConfigError as error:
            if not is_network_grid(self._grid):
                raise
            if self._leave_out(node, str(error)):
                self._query_errors.append(f"node {node}: {error}")
            return False
        return True

    def _leave_out(self, node: int, reason: str) -> bool:
        """Note and log why a node takes no part; return whether that is new."""
        is_new = self._reasons.get(node) != reason
        if is_new:
            logger.warning("node %d takes no part: %s", node, reason)
        self._reasons[node] = reason
        return is_new

    def _assign(self, client: int, node: int) -> None:
        """Record which node a client is, and which other one it was before."""
        self.by_client[client] = node
        self._reasons.pop(node, None)
        self.own_data.pop(client, None)
        if node in self._own_data:
            self.own_data[client] = self._own_data[node]
        before = self._last_node.get(client, node)
        if before != node:
            self._replaced.append(before)
        self._last_node[client] = node

    def _missing_partition(self) -> str:
        missing = [number for number in range(self.num_clients) if number not in self.by_client]
        errors = [*self._query_errors, *self._refusals.values()]
        error = f"; {errors[0]}" if errors else ""
        return (
            f"no node has {PARTITION_ID}={missing[0]} ({len(missing)} of {self.num_clients} "
            f"missing{error}); start SuperNodes with "
            f'--node-config "{PARTITION_ID}={missing[0]} num-partitions={self.num_clients}"'
        )
