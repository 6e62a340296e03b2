"""Which node is which client, where only the nodes know.

Node ids are random, or belong to a device's key. Seeded sampling of clients needs the map from one
to the other: every node is queried when it connects, and before each round while it cannot be used.
A partition belongs to the node that named it first, for as long as that is connected.
"""

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from fedavg_app.client_settings import (
    DATA_DIGEST,
    OWN_DATA,
    OWN_EXAMPLES,
    PARTITION_DIGEST,
    PARTITION_ID,
)
from fedavg_app.config import RunConfig
from fedavg_app.errors import ConfigError, RunError
from fedavg_app.partitioning import DataDigests
from fedavg_app.server.network_grid import is_network_grid
from fedavg_app.server.nodes import Nodes, NumberedGrid
from fedavg_app.server.polling import MAX_PAUSE, PAUSE_GROWTH, send, wait
from strategies.rounds.flower_arrays import find_record
from strategies.rounds.messages import CONFIG
from strategies.rounds.reply_errors import error_reason

logger = logging.getLogger("fedavg_app.nodes")

# SuperNodes register one after the other; this long after the last one no more are expected.
QUIET_SECONDS = 3.0
QUERY_TIMEOUT = 600.0
POLL_SECONDS = 0.05


@dataclass(frozen=True)
class NodeQuery:
    """The query, which may ask for the digests of a node's data.

    Attributes:
        settings: What messages tell clients, with which nodes load the shared data set; None leaves
            their data out, and they need not load them to answer.
        compare: Raises a `ConfigError` where a node's digests are not the server's.
        validation: The share of training examples that is set aside; the server has none of a
            node's own data, which is refused.
    """

    settings: ConfigRecord | None = None
    compare: Callable[[DataDigests], None] = lambda _: None
    validation: float = 0.0

    def message(self, node_id: int) -> Message:
        """Return the query for a node."""
        content = RecordDict({CONFIG: self.settings} if self.settings else {})
        return Message(content, dst_node_id=node_id, message_type=MessageType.QUERY)

    def read(self, reply: Message) -> tuple[int, tuple[str, int] | None]:
        """Return a node's partition; if its data are its own, their fingerprint and number.

        Raises:
            ConfigError: Its shared data are not the server's, or it has its own with validation.
            ValueError: It failed, or has no partition.
        """
        if reply.has_error():
            raise ValueError(error_reason(reply.error))
        record = find_record(reply.content, "node", ConfigRecord) or ConfigRecord()
        client = record.get(PARTITION_ID)
        if isinstance(client, bool) or not isinstance(client, int):
            raise ValueError(f"no {PARTITION_ID}")
        data, rows = record.get(DATA_DIGEST), record.get(PARTITION_DIGEST)
        if isinstance(data, str) and isinstance(rows, str):
            self.compare(DataDigests(data, rows))
        fingerprint, examples = record.get(OWN_DATA), record.get(OWN_EXAMPLES)
        if isinstance(fingerprint, str) and isinstance(examples, int):
            if self.validation:
                fix = "it has data of its own, which the server cannot evaluate on; leave it out"
                raise ConfigError("validation", self.validation, fix)
            return client, (fingerprint, examples)
        return client, None


QUERY = NodeQuery()


@dataclass
class Node:
    """A connected node.

    Attributes:
        asked: When it was sent its query; None where it is to be sent one.
        query: The id of its query, until that is answered.
        client: The number in its answer, and -1 before; another node may be that client.
        own_data: If it has data of its own, their fingerprint and the number of training examples.
        reason: Why it takes no part, if so.
    """

    asked: float | None = None
    query: str = ""
    client: int = -1
    own_data: tuple[str, int] | None = None
    reason: str = ""


class NodeRegistry(Nodes):
    """The connected nodes, by the client that each is.

    Args:
        grid: Reaches the nodes.
        num_clients: K; nodes with a partition beyond are not used.
        query: What nodes are asked.

    Attributes:
        by_client: The node id of every client that is connected.
    """

    def __init__(self, grid: Grid, num_clients: int, query: NodeQuery = QUERY) -> None:
        super().__init__(num_clients)
        self._grid, self._query = grid, query
        self.by_client: dict[int, int] = {}
        # By id; those that have answered are in the order of their answers.
        self._nodes: dict[int, Node] = {}
        self._refusals: dict[int, str] = {}

    @property
    def clients(self) -> list[int]:
        """The numbers of the connected clients, rising."""
        return sorted(self.by_client)

    def node(self, client: int) -> int:
        """Return the node that is a client."""
        return self.by_client[client]

    def clients_of(self, nodes: Iterable[int]) -> dict[int, int]:
        """Return the clients of those nodes that are connected, by node."""
        by_node = {node: client for client, node in self.by_client.items()}
        return {node: by_node[node] for node in nodes if node in by_node}

    def take_refusals(self) -> dict[int, str]:
        """Return why nodes were refused since the last call, by node."""
        refusals, self._refusals = self._refusals, {}
        return refusals

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
            if len(self._nodes) >= required:
                raise RunError(self._missing_partition())
            found = f"there are only {len(self._nodes)} SuperNodes"
            flag = f"num-supernodes={self.num_clients} client-resources-num-cpus=1"
            fix = f'for a simulation add --federation-config "{flag}", '
            fix += "otherwise start more SuperNodes or give fewer clients"
            key = "min-nodes" if min_nodes else "num-clients"
            raise ConfigError(key, required, f"{found}; {fix}")
        # The others that are there already are waited for as well, but not for long.
        self._wait_for_clients(len(self._nodes), 0.0, quiet_seconds)
        if (beyond := len(self._nodes) - self.num_clients) > 0:
            text = "%d of %d nodes are not used: num-clients is %d"
            logger.warning(text, beyond, len(self._nodes), self.num_clients)

    def update(self) -> None:
        """Update the nodes that connected or disconnected, without waiting.

        New nodes are queried; their clients count as connected once they have answered.
        """
        ids = set(self._grid.get_node_ids())
        kept = {number: node for number, node in self._nodes.items() if number in ids}
        self._nodes = kept | {number: Node() for number in sorted(ids - kept.keys())}
        self._ask()
        while replies := list(self._grid.pull_messages((queries := self._queries()).keys())):
            for reply in sorted(replies, key=lambda reply: reply.metadata.src_node_id):
                self._read(queries[reply.metadata.reply_to_message_id], reply)
        self._map()

    def wait_for_any(self, seconds: float) -> None:
        """Update until at least one client is connected.

        Nodes that take no part are queried again, and those that have not answered for long: the
        device may have been put right, or have restarted with the query in hand.

        Raises:
            RunError: There is none after ``seconds``.
        """
        late = time.monotonic() - QUERY_TIMEOUT
        for node in self._nodes.values():
            is_overdue = node.query and node.asked is not None and node.asked < late
            if is_overdue or (node.reason and not node.query):
                node.asked, node.query = None, ""
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
            seen = len(self._nodes), len(self._queries())
            if seen != before:
                before, last_change, pause = seen, time.monotonic(), POLL_SECONDS
            can_be_enough = self._queries() and len(self._nodes) >= required
            patience = unanswered if can_be_enough else quiet
            left = last_change + patience - time.monotonic()
            if left <= 0:
                return False
            wait(self._grid, min(pause, left))
            pause = min(pause * PAUSE_GROWTH, MAX_PAUSE)

    def _queries(self) -> dict[str, int]:
        """Return the nodes that have not answered their query, by its id."""
        return {node.query: number for number, node in self._nodes.items() if node.query}

    def _ask(self) -> None:
        """Send the query to the nodes that are to get it."""
        numbers = [number for number, node in self._nodes.items() if node.asked is None]
        queries = [self._query.message(number) for number in numbers]
        for number, query in zip(
            numbers, send(self._grid, queries) if numbers else [], strict=True
        ):
            if query:
                self._nodes[number].asked, self._nodes[number].query = time.monotonic(), query

    def _read(self, number: int, reply: Message) -> None:
        """Record a node's answer, as the last of all.

        Raises:
            ConfigError: In a simulation it has other data; a device with others takes no part.
        """
        node = self._nodes[number]
        # A node that is a client already keeps its place when it is asked again.
        if self.by_client.get(node.client) != number:
            self._nodes[number] = self._nodes.pop(number)
        node.query, node.client, node.own_data = "", -1, None
        try:
            node.client, node.own_data = self._query.read(reply)
        except ValueError as error:
            if isinstance(error, ConfigError) and not is_network_grid(self._grid):
                raise
            self._leave_out(number, str(error))

    def _map(self) -> None:
        """Give each client to the first of the nodes that have named it."""
        before, self.by_client = self.by_client, {}
        self.own_data.clear()
        for number, node in self._nodes.items():
            if node.query or node.client not in range(self.num_clients):
                continue
            holder = self.by_client.setdefault(node.client, number)
            if holder == number:
                node.reason = ""
                if node.own_data:
                    self.own_data[node.client] = node.own_data
                continue
            reason = (
                f"node {holder} has {PARTITION_ID}={node.client} already; "
                "give each SuperNode a partition of its own with --node-config"
            )
            if self._leave_out(number, reason):
                self._refusals[number] = reason
        for client, number in before.items():
            if number not in self._nodes:
                logger.warning("node %d, client %d, has disconnected", number, client)
                if client in self.by_client:
                    text = "client %d is now node %d, not %d"
                    logger.warning(text, client, self.by_client[client], number)

    def _leave_out(self, number: int, reason: str) -> bool:
        """Note and log why a node takes no part; return whether that is new."""
        is_new = self._nodes[number].reason != reason
        if is_new:
            logger.warning("node %d is not used: %s", number, reason)
        self._nodes[number].reason = reason
        return is_new

    def _missing_partition(self) -> str:
        missing = [number for number in range(self.num_clients) if number not in self.by_client]
        left_out = [(number, node) for number, node in self._nodes.items() if node.reason]
        why = f"; node {left_out[0][0]}: {left_out[0][1].reason}" if left_out else ""
        config = f"{PARTITION_ID}={missing[0]} num-partitions={self.num_clients}"
        found = f"no node has {PARTITION_ID}={missing[0]}"
        return (
            f"{found} ({len(missing)} of {self.num_clients} missing{why}); "
            f'start SuperNodes with --node-config "{config}"'
        )


def find_nodes(
    grid: Grid, config: RunConfig, settings: ConfigRecord, compare: Callable[[DataDigests], None]
) -> Nodes:
    """Return the nodes that a run begins with; they are queried where the grid has no numbers.

    A device loads the data for its query only where the user's own code makes or splits them: only
    there nodes' data can differ from the server's.

    Args:
        grid: Reaches the nodes.
        config: The run's.
        settings: What messages tell clients.
        compare: Raises a `ConfigError` where a node's digests are not the server's.

    Raises:
        ConfigError, RunError: As for `NodeRegistry.wait_for_start`.
    """
    if isinstance(grid, NumberedGrid):
        return grid.numbered_nodes()
    is_own_code = ":" in config.task or ":" in config.partition
    compares = is_own_code or not is_network_grid(grid)
    query = NodeQuery(settings if compares else None, compare, config.validation)
    nodes = NodeRegistry(grid, config.num_clients, query)
    nodes.wait_for_start(config.min_nodes, config.node_timeout)
    return nodes
