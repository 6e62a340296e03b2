"""Which node holds which partition.

Node ids are random in every run and only a node knows its partition, so a seeded choice of clients
needs the map from one to the other: every node is asked once, at the start.
"""

import logging
import time

from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from fedavg_app.errors import ConfigError, RunError
from fedavg_app.exchange import exchange
from strategies.screening import error_reason

logger = logging.getLogger("fedavg_app.nodes")

PARTITION_ID = "partition-id"
# Where a node has data of its own, which it then takes instead of its part of a shared data set.
DATA_DIR = "data-dir"
# SuperNodes register one after the other; this long after the last one no more are expected.
QUIET_SECONDS = 3.0
QUERY_TIMEOUT = 600.0


def find_nodes(grid: Grid, num_clients: int, quiet_seconds: float = QUIET_SECONDS) -> list[int]:
    """Return the node id of every partition 0 .. K - 1.

    Args:
        grid: The grid to ask.
        num_clients: K; nodes with a partition beyond are left alone.
        quiet_seconds: How long to wait for another node when there are too few.

    Raises:
        ConfigError: Fewer nodes than clients.
        RunError: A partition that no node, or more than one, holds.
    """
    node_ids = _wait_for_nodes(grid, num_clients, quiet_seconds)
    if len(node_ids) < num_clients:
        raise ConfigError(
            "num-clients",
            num_clients,
            f"there are only {len(node_ids)} SuperNodes; for a simulation add "
            f'--federation-config "num-supernodes={num_clients} client-resources-num-cpus=1", '
            "otherwise start more SuperNodes or give fewer clients",
        )
    queries = [
        Message(RecordDict(), dst_node_id=node, message_type=MessageType.QUERY) for node in node_ids
    ]
    holders: dict[int, int] = {}
    reasons: list[str] = []
    replies = exchange(grid, queries, QUERY_TIMEOUT)
    for reply in sorted(replies, key=lambda reply: reply.metadata.src_node_id):
        node = reply.metadata.src_node_id
        if reply.has_error():
            reasons.append(f"node {node}: {error_reason(reply.error)}")
            continue
        record = reply.content.config_records.get("node", ConfigRecord())
        number = record.get(PARTITION_ID)
        if isinstance(number, bool) or not isinstance(number, int):
            reasons.append(f"node {node}: no {PARTITION_ID}")
        elif number in holders:
            raise RunError(
                f"nodes {holders[number]} and {node} both hold {PARTITION_ID}={number}; "
                "give each SuperNode a partition of its own with --node-config"
            )
        else:
            holders[number] = node
    missing = [number for number in range(num_clients) if number not in holders]
    if missing:
        raise RunError(
            f"no node holds {PARTITION_ID}={missing[0]} ({len(missing)} of {num_clients} missing"
            f"{'; ' + reasons[0] if reasons else ''}); start SuperNodes with "
            f'--node-config "{PARTITION_ID}={missing[0]} num-partitions={num_clients}"'
        )
    if len(holders) > num_clients:
        logger.warning(
            "%d of %d nodes take no part: num-clients is %d",
            len(holders) - num_clients,
            len(holders),
            num_clients,
        )
    return [holders[number] for number in range(num_clients)]


def _wait_for_nodes(grid: Grid, num_clients: int, quiet_seconds: float) -> list[int]:
    """Return the node ids once there are enough, or no new one has come for a while."""
    node_ids = sorted(grid.get_node_ids())
    last_change = time.monotonic()
    while len(node_ids) < num_clients and time.monotonic() - last_change < quiet_seconds:
        time.sleep(0.05)
        found = sorted(grid.get_node_ids())
        if len(found) != len(node_ids):
            last_change = time.monotonic()
        node_ids = found
    return node_ids
