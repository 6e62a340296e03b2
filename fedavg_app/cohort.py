"""The part of a grid that a strategy sees: the nodes of one round's cohort.

Flower's strategies pick nodes at random among all that the grid names. Shown only the cohort that
`fedavg_app.sampling` drew, and told to take all, they follow the same seeded participation as ours.
"""

import time
from collections.abc import Iterable, Sequence

from flwr.app import Message
from flwr.serverapp import Grid

from fedavg_app.exchange import Waiting
from fedavg_app.internals import BaseGrid, NodeInfo


class CohortGrid(BaseGrid):
    """A grid that names only ``node_ids``, in that order, and is otherwise ``grid``."""

    def __init__(self, grid: Grid, node_ids: Sequence[int]) -> None:
        self._grid = grid
        self._node_ids = list(node_ids)
        self._wait = grid.wait if isinstance(grid, Waiting) else time.sleep

    def get_node_ids(self) -> list[int]:
        """Return the cohort's node ids."""
        return list(self._node_ids)

    def get_nodes(self) -> Iterable[NodeInfo]:
        """Return what the grid knows of the cohort's nodes."""
        return [node for node in self._grid.get_nodes() if node.node_id in set(self._node_ids)]

    def wait(self, seconds: float) -> None:
        """Wait for replies as the grid does."""
        self._wait(seconds)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send messages through the grid."""
        return self._grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Fetch replies from the grid."""
        return self._grid.pull_messages(message_ids)
