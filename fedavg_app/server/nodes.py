"""The nodes of a run, by the client that each is."""

import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Protocol, runtime_checkable

from fedavg_app.flower_internals import FIRST_NODE_ID

logger = logging.getLogger("fedavg_app.nodes")


class Nodes:
    """Nodes whose ids say which client they are, all connected from first to last.

    Node ``FIRST_NODE_ID + k`` is client k: nothing is kept of each, and none is queried.

    Args:
        num_clients: K.

    Attributes:
        own_data: For each client that has data of its own, their fingerprint and the number of
            training examples.
    """

    def __init__(self, num_clients: int) -> None:
        self.num_clients = num_clients
        self.own_data: dict[int, tuple[str, int]] = {}

    @property
    def clients(self) -> Sequence[int]:
        """The numbers of the connected clients, rising."""
        return range(self.num_clients)

    def node(self, client: int) -> int:
        """Return the node that is a client."""
        return FIRST_NODE_ID + client

    def clients_of(self, nodes: Iterable[int]) -> dict[int, int]:
        """Return the clients of those nodes that are connected, by node."""
        return {node: node - FIRST_NODE_ID for node in nodes}

    def wait_for_any(self, seconds: float) -> None:
        """Wait until at least one client is connected.

        Raises:
            RunError: There is none after ``seconds``.
        """

    def take_refusals(self) -> dict[int, str]:
        """Return why nodes were refused since the last call, by node."""
        return {}

    def log_own_data(self) -> None:
        """Log how many clients have data of their own, and which of them have the same."""
        same = defaultdict[str, list[int]](list)
        for client, (fingerprint, _) in sorted(self.own_data.items()):
            same[fingerprint].append(client)
        if same:
            text = "%d of %d clients train on data of their own; the partition is for the others"
            logger.info(text, len(self.own_data), self.num_clients)
        for clients in same.values():
            if len(clients) > 1:
                text = "clients %s have the same data; give each device a data-dir with its own"
                logger.warning(text, ", ".join(map(str, clients)))


@runtime_checkable
class NumberedGrid(Protocol):
    """A grid whose nodes' ids say which client they are."""

    def numbered_nodes(self) -> Nodes:
        """Return the nodes, once messages can be sent."""
