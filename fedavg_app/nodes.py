"""Which node holds which partition.

Node ids are random, or belong to a device's key, and only a node knows its partition. A seeded
choice of clients needs the map from one to the other: every node is asked once, when it comes.
"""

import logging
import time
from collections.abc import Iterable

from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from fedavg_app.errors import ConfigError, RunError
from fedavg_app.exchange import arrivals, send
from strategies.screening import error_reason

logger = logging.getLogger("fedavg_app.nodes")

PARTITION_ID = "partition-id"
# Where a node has data of its own, which it then takes instead of its part of a shared data set.
DATA_DIR = "data-dir"
# SuperNodes register one after the other; this long after the last one no more are expected.
QUIET_SECONDS = 3.0
QUERY_TIMEOUT = 600.0
LOOK_SECONDS = 0.05


class Roster:
    """The nodes that are there, by the partition each holds.

    Args:
        grid: Reaches the nodes.
        num_clients: K; nodes with a partition beyond are left alone.

    Attributes:
        num_clients: K.
        holders: The node id of every partition whose node is there.
    """

    def __init__(self, grid: Grid, num_clients: int) -> None:
        self.holders: dict[int, int] = {}
        self._grid, self.num_clients = grid, num_clients
        self._seen: list[int] = []
        self._asked: dict[str, int] = {}  # by the id of the query that is not answered yet
        self._reasons: list[str] = []

    @property
    def clients(self) -> list[int]:
        """The partitions whose nodes are there, sorted."""
        return sorted(self.holders)

    def assemble(self, min_nodes: int = 0, quiet_seconds: float = QUIET_SECONDS) -> None:
        """Wait for the nodes that a run begins with.

        Args:
            min_nodes: How many; 0 means one per client. The others may come later.
            quiet_seconds: How long to wait for another one when there are too few.

        Raises:
            ConfigError: Fewer nodes than that.
            RunError: Two nodes hold one partition, or too few hold one of those that there are.
        """
        required = min_nodes or self.num_clients
        self._wait_for(required, quiet_seconds)
        if len(self._seen) < required:
            key = "min-nodes" if min_nodes else "num-clients"
            raise ConfigError(
                key,
                required,
                f"there are only {len(self._seen)} SuperNodes; for a simulation add "
                f'--federation-config "num-supernodes={self.num_clients} '
                'client-resources-num-cpus=1", '
                "otherwise start more SuperNodes or give fewer clients",
            )
        # All are asked, and waited for in turn: those needed, then for a while those that are not.
        for enough, seconds in ((required, QUERY_TIMEOUT), (len(self._seen), quiet_seconds)):
            for replies in arrivals(self._grid, list(self._asked), seconds):
                for reply in sorted(replies, key=lambda reply: reply.metadata.src_node_id):
                    if twice := self._take_in(reply):
                        raise RunError(
                            f"nodes {twice[0]} and {twice[1]} both hold {PARTITION_ID}={twice[2]}; "
                            "give each SuperNode a partition of its own with --node-config"
                        )
                if len(self.holders) >= enough:
                    break
        if len(self.holders) < required:
            raise RunError(self._missing())
        if len(self._seen) > self.num_clients:
            logger.warning(
                "%d of %d nodes take no part: num-clients is %d",
                len(self._seen) - self.num_clients,
                len(self._seen),
                self.num_clients,
            )

    def look(self) -> None:
        """Take in which nodes have come and gone; nothing is waited for.

        Those that have come are asked for their partition; they are there from when they answer.
        """
        found = sorted(self._grid.get_node_ids())
        if found != self._seen:
            came, gone = set(found) - set(self._seen), set(self._seen) - set(found)
            for client, node in list(self.holders.items()):
                if node in gone:
                    logger.warning("node %d, of client %d, has gone", node, client)
                    del self.holders[client]
            self._asked = {key: node for key, node in self._asked.items() if node not in gone}
            self._seen = found
            self._ask(came)
        if self._asked:
            for reply in self._grid.pull_messages(list(self._asked)):
                if twice := self._take_in(reply):
                    before, node, client = twice
                    logger.warning("client %d is now node %d, not %d", client, node, before)

    def wait(self, seconds: float) -> None:
        """Look until at least one client is there.

        Raises:
            RunError: There is none after ``seconds``.
        """
        self.look()
        deadline = time.monotonic() + seconds
        while not self.holders:
            if time.monotonic() >= deadline:
                fix = "start SuperNodes, or give a longer node-timeout"
                raise RunError(f"no SuperNode was there for {seconds:g} s; {fix}")
            time.sleep(LOOK_SECONDS)
            self.look()

    def _wait_for(self, required: int, quiet_seconds: float) -> None:
        """Ask the nodes that come until there are enough, or no new one has come for a while."""
        last_change = time.monotonic()
        while True:
            found = sorted(self._grid.get_node_ids())
            if len(found) != len(self._seen):
                last_change = time.monotonic()
            came = set(found) - set(self._seen)
            self._seen = found
            self._ask(came)
            if len(found) >= required or time.monotonic() - last_change >= quiet_seconds:
                return
            time.sleep(LOOK_SECONDS)

    def _ask(self, nodes: Iterable[int]) -> None:
        asked = sorted(nodes)
        queries = [
            Message(RecordDict(), dst_node_id=node, message_type=MessageType.QUERY)
            for node in asked
        ]
        if queries:
            ids = send(self._grid, queries)
            self._asked |= {key: node for key, node in zip(ids, asked, strict=True) if key}

    def _take_in(self, reply: Message) -> tuple[int, int, int] | None:
        """Note which partition a node holds; return (node, node, partition) if it is another's."""
        node = self._asked.pop(reply.metadata.reply_to_message_id)
        if reply.has_error():
            self._reasons.append(f"node {node}: {error_reason(reply.error)}")
            return None
        record = reply.content.config_records.get("node", ConfigRecord())
        client = record.get(PARTITION_ID)
        if isinstance(client, bool) or not isinstance(client, int):
            self._reasons.append(f"node {node}: no {PARTITION_ID}")
        elif 0 <= client < self.num_clients:
            before = self.holders.get(client, node)
            self.holders[client] = node
            if before != node:
                return before, node, client
        return None

    def _missing(self) -> str:
        missing = [number for number in range(self.num_clients) if number not in self.holders]
        return (
            f"no node holds {PARTITION_ID}={missing[0]} ({len(missing)} of {self.num_clients} "
            f"missing{'; ' + self._reasons[0] if self._reasons else ''}); start SuperNodes with "
            f'--node-config "{PARTITION_ID}={missing[0]} num-partitions={self.num_clients}"'
        )
