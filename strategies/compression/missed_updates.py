"""Which updates each client missed, and whether it is sent them or the full model."""

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .sync_protocol import Version, encode_update


class MissedUpdates:
    """The server's side of the protocol that updates clients' models (docs/protocol.md).

    It keeps the last updates, as many as together are smaller than the full model in float32.

    Attributes:
        current: The current version.
        confirmed: By node, the number of the version that it has, and how many updates there were
            by then.
        offered: By round, the version that clients had once they had read its message, as in
            ``confirmed``; of the rounds whose replies may still come.
    """

    def __init__(self) -> None:
        self.confirmed: dict[int, tuple[int, int]] = {}
        self.offered: dict[int, tuple[int, int]] = {}
        self.start_from(0, np.empty(0, np.float32))

    def start_from(self, number: int, vector: NDArray[Any]) -> None:
        """Begin with a model, (n,), that no client has yet."""
        self.current, self._count = Version.of(number, vector), 0
        self._oldest = number  # the version that the first update kept leads on from
        self._max_bytes = 4 * vector.size  # in float32, as updates are
        self._updates: deque[tuple[int, bytes]] = deque()
        self._joined: dict[int, bytes] = {}  # the updates since a version, for clients alike
        self.confirmed.clear()
        self.offered.clear()

    def is_current(self, vector: NDArray[Any]) -> bool:
        """Return whether the model is the current version."""
        return Version.of(self.current.number, vector) == self.current

    def offer(self, server_round: int, keep: int) -> None:
        """Record that a round's clients are sent the current version, and ``keep`` rounds more."""
        self.offered.setdefault(server_round, (self.current.number, self._count))
        for number in [offered for offered in self.offered if offered < server_round - keep]:
            del self.offered[number]

    def confirm(self, answered: Mapping[int, int]) -> None:
        """Record, by node, the round of which a client has the version."""
        for node, number in answered.items():
            self.confirmed[node] = self.offered[number]

    def confirm_model(self, node: int) -> None:
        """Record that a client has the current version."""
        self.confirmed[node] = self.current.number, self._count

    def append(self, server_round: int, data: bytes, vector: NDArray[Any]) -> None:
        """Add the update of a round, which led to the model ``vector``."""
        self.current = Version.of(server_round, vector)
        self._joined.clear()
        self._count += 1
        self._updates.append((server_round, encode_update(server_round, data)))
        while self._updates and sum(len(update) for _, update in self._updates) >= self._max_bytes:
            self._oldest, _ = self._updates.popleft()

    def following(self, node: int) -> int | None:
        """Return the version from which the client can follow; None if it needs the full model."""
        number, _ = self.confirmed.get(node, (-1, 0))
        return number if number >= self._oldest else None

    def num_missed(self, node: int) -> int | None:
        """Return how many updates the client missed; None where it has no model."""
        return self._count - self.confirmed[node][1] if node in self.confirmed else None

    def updates_since(self, number: int) -> bytes:
        """Return the encoded updates since the version of that number."""
        if number not in self._joined:
            later = (update for made, update in self._updates if made > number)
            self._joined[number] = b"".join(later)
        return self._joined[number]
