"""What a node is asked as it connects, and what it answers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

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
from fedavg_app.partitioning import DataDigests
from fedavg_app.server.network_grid import is_network_grid
from strategies.rounds.messages import CONFIG
from strategies.rounds.reply_errors import error_reason


class NodeAnswer(NamedTuple):
    """A node's partition; if its data are its own, their fingerprint and number."""

    client: int
    own_data: tuple[str, int] | None


@dataclass(frozen=True)
class NodeQuery:
    """The query, which may ask for the digests of a node's data.

    Attributes:
        settings: What messages tell clients, with which nodes load the shared data set; None leaves
            their data out, and they need not load them to answer.
        compare: Raises a `ConfigError` where a node's digests are not the server's.
    """

    settings: ConfigRecord | None = None
    compare: Callable[[DataDigests], None] = lambda _: None

    def message(self, node_id: int) -> Message:
        """Return the query for a node."""
        content = RecordDict({CONFIG: self.settings} if self.settings else {})
        return Message(content, dst_node_id=node_id, message_type=MessageType.QUERY)

    def read(self, reply: Message) -> NodeAnswer:
        """Return what a node has answered.

        Raises:
            ConfigError: Its shared data are not the server's.
            ValueError: It failed, or has no partition.
        """
        if reply.has_error():
            raise ValueError(error_reason(reply.error))
        record = reply.content.config_records.get("node", ConfigRecord())
        client = record.get(PARTITION_ID)
        if isinstance(client, bool) or not isinstance(client, int):
            raise ValueError(f"no {PARTITION_ID}")
        data, rows = record.get(DATA_DIGEST), record.get(PARTITION_DIGEST)
        if isinstance(data, str) and isinstance(rows, str):
            self.compare(DataDigests(data, rows))
        fingerprint, examples = record.get(OWN_DATA), record.get(OWN_EXAMPLES)
        if isinstance(fingerprint, str) and isinstance(examples, int):
            return NodeAnswer(client, (fingerprint, examples))
        return NodeAnswer(client, None)


def node_query(
    grid: Grid, config: RunConfig, settings: ConfigRecord, compare: Callable[[DataDigests], None]
) -> NodeQuery:
    """Return the query, which compares nodes' data with the server's where they can differ.

    A device loads the data for its query only where the user's own code makes or splits them.
    """
    is_own_code = ":" in config.task or ":" in config.partition
    if is_network_grid(grid) and not is_own_code:
        return NodeQuery()
    return NodeQuery(settings, compare)
