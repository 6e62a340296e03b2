"""Which clients take part in a round, and the part of a grid that shows only them.

Flower's strategies choose nodes at random among all that the grid names. They are shown the cohort
that `sample_clients` drew, and told to take all of it, so that they follow the same seeded
participation as ours.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import ceil

from flwr.app import Message
from flwr.serverapp import Grid

from fedavg_app.flower_internals import BaseGrid
from fedavg_app.server.polling import wait
from strategies.selection import Candidate
from tasks.training.random_streams import numpy_generator

ROUNDING = 1e-9


def cohort_size(fraction: float, num_clients: int) -> int:
    """Return m = max(round(C K), 1) (arXiv 1602.05629v4, Algorithm 1); C = 0 means one client.

    Halves round up, so that C = 0.125 of 100 clients are 13 whatever Python's ``round`` does, and
    so do products that miss a half by rounding only, as 0.29 times 50 does.
    """
    return max(int(fraction * num_clients + 0.5 + ROUNDING), 1)


def with_over_selection(size: int, share: float) -> int:
    """Return how many clients are asked so that ``size`` answer in time: ``share`` more."""
    return size + ceil(size * share - ROUNDING)  # less the error of, for example, 50 * 0.14


def sample_clients(
    seed: int, server_round: int, purpose: str, size: int, clients: Sequence[int]
) -> list[int]:
    """Return the sorted numbers of the clients that take part: a function of seed and round.

    Args:
        seed: The run's seed.
        server_round: The round's number, from 1.
        purpose: "train" or "evaluate": two independent draws.
        size: How many are wanted; all if there are fewer.
        clients: The numbers of the connected clients, rising.
    """
    size = min(size, len(clients))
    generator = numpy_generator(seed, purpose, server_round)
    drawn = generator.choice(len(clients), size=size, replace=False)
    return sorted(clients[int(place)] for place in drawn)


@dataclass(frozen=True)
class Facts:
    """What the server knows of the clients before they report.

    Attributes:
        num_examples: Returns n_k of a client.
        device: Returns the name of a client's class of devices; empty without links.
    """

    num_examples: Callable[[int], int] = lambda _: 0
    device: Callable[[int], str] = lambda _: ""


class CohortGrid(BaseGrid):
    """A grid that names only ``node_ids``, in that order, and is otherwise ``grid``."""

    def __init__(self, grid: Grid, node_ids: Sequence[int]) -> None:
        self._grid = grid
        self._node_ids = list(node_ids)

    def get_node_ids(self) -> list[int]:
        """Return the cohort's node ids."""
        return list(self._node_ids)

    def wait(self, seconds: float) -> None:
        """Wait for replies as the grid does."""
        wait(self._grid, seconds)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send messages through the grid."""
        return self._grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Fetch replies from the grid."""
        return self._grid.pull_messages(message_ids)


class AvailableGrid(CohortGrid):
    """A grid with all clients that may take part in a round; the strategy chooses among them.

    Args:
        grid: Carries the messages.
        available: The clients, by rising number.
        count: How many take part.
    """

    def __init__(self, grid: Grid, available: Sequence[Candidate], count: int) -> None:
        super().__init__(grid, [client.node for client in available])
        self.available, self.count = available, count
