"""Which version of the global model each client has, and the updates that lead on from it."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from strategies.compression.decoded_update import Vector
from strategies.compression.sync_protocol import Head, UpdateHistory


@dataclass(frozen=True)
class _Confirmed:
    """What a client last confirmed: its version, and how many updates there were by then."""

    version: int
    update_count: int


class ClientVersions:
    """The server's side of the protocol that updates clients' models (docs/protocol.md)."""

    def __init__(self) -> None:
        self._history = UpdateHistory(0, np.empty(0, np.float32))
        self._confirmed: dict[int, _Confirmed] = {}
        # The round of each node's last accepted update. Kept for nodes that lost their model, too:
        # they may still hold the update that this settles.
        self._accepted: dict[int, int] = {}

    @property
    def fingerprint(self) -> int:
        """The fingerprint of the current version."""
        return self._history.version.fingerprint

    def start_from(self, number: int, vector: Vector) -> None:
        """Begin with a model, float32 (n,), that no client has yet."""
        self._history = UpdateHistory(number, vector)
        self._confirmed.clear()

    def confirm(self, nodes: Iterable[int], server_round: int) -> None:
        """Record that these clients trained from the current version, and that it was accepted."""
        confirmed = _Confirmed(self._history.version.number, self._history.count)
        for node in nodes:
            self._confirmed[node] = confirmed
            self._accepted[node] = server_round

    def append(self, server_round: int, update: bytes, vector: Vector) -> None:
        """Add the update that leads to the round's model ``vector``."""
        self._history.append(server_round, update, vector)

    def forget_model(self, node: int) -> None:
        """Record that the client does not have a model any more."""
        self._confirmed.pop(node, None)

    def forget_models(self) -> None:
        """Record that no client has a model any more."""
        self._confirmed.clear()

    def forget_accepted(self, node: int) -> None:
        """Tell a client that none of its updates was accepted."""
        self._accepted.pop(node, None)

    def forget_all_accepted(self) -> None:
        """Tell all clients that no update of theirs was accepted."""
        self._accepted.clear()

    def can_follow(self, node: int) -> bool:
        """Return whether the updates that the client missed are all kept."""
        return node in self._confirmed and self._history.reaches(self._confirmed[node].version)

    def version(self, node: int) -> int:
        """Return the number of the version that the client confirmed."""
        return self._confirmed[node].version

    def num_missed(self, node: int) -> int | None:
        """Return how many updates the client missed; None where it has no model."""
        if node not in self._confirmed:
            return None
        return self._history.count - self._confirmed[node].update_count

    def head(self, node: int, codec: int) -> Head:
        """Return the head of a message to the client."""
        return Head(codec, self._accepted.get(node, 0), self._history.version)

    def updates_since(self, number: int) -> bytes:
        """Return the encoded updates since the version of that number."""
        return self._history.since(number)
