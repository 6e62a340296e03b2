"""How a compressed strategy's server sends the model to clients (docs/protocol.md).

It makes one update per round, which all clients get. `missed_updates` keeps which updates a client
has, and which are still kept.
"""

from collections.abc import Mapping

import numpy as np

from strategies.compression.compressor import Compressor
from strategies.compression.decoded_update import Vector as Float32Vector
from strategies.compression.error_feedback import add, compress
from strategies.compression.sync_protocol import Version
from strategies.compression.vector_layout import Layout
from strategies.missed_updates import MissedUpdates
from strategies.model import Vector
from strategies.random_streams import DOWNLINK, random_stream
from strategies.rounds import Round


class Downlink:
    """Keeps clients' models in step, on the server: clients get the updates that they missed.

    Args:
        compressor: Compresses the update of a round, by which exactly the model changes.
        keeps_error: Whether what it leaves out is sent later.

    Attributes:
        layout: The model's; None before the first round.
        residual: What clients have not been sent yet, float32 (n,). None before the first round
            and without error feedback.
        versions: Which updates clients have.
        settled: By node, the round of its last update that was accepted or refused for good, and
            whether it was refused. Kept for nodes that lost their model, too: they may still hold
            the update that this settles.
    """

    def __init__(self, compressor: Compressor, *, keeps_error: bool) -> None:
        self.compressor = compressor
        self._keeps_error = keeps_error
        self.layout: Layout | None = None
        self.residual: Float32Vector | None = None
        self.versions = MissedUpdates()
        self.settled: dict[int, tuple[int, bool]] = {}

    def begin(self, now: Round, max_staleness: int) -> None:
        """Begin a round, whose replies may be this many rounds late.

        No client has the model yet if it is the initial model, or was made elsewhere.
        """
        vector = now.model.vector
        if self.layout != now.model.layout or not self.versions.is_current(vector):
            self.layout = now.model.layout
            self.versions.start_from(now.number - 1, vector)
        self.versions.offer(now.number, max_staleness)

    def sent_to(self, node: int) -> tuple[Version, bytes | None]:
        """Return the version that a client will have, and the updates to it; None for the model."""
        own = self.versions.following(node)
        updates = None if own is None else self.versions.updates_since(own)
        return self.versions.current, updates

    def step(self, now: Round, update: Float32Vector, answered: Mapping[int, int]) -> Vector:
        """Return the next model; confirm, by node, the rounds of the replies used in it.

        The model changes by exactly what clients will be sent.

        Raises:
            OutOfRangeError: The update is not finite, or beyond what clients may send.
        """
        layout = now.model.layout
        if self.residual is not None:
            update = add(update, self.residual)
        rng = random_stream(now.settings.seed, DOWNLINK, 0, now.number)
        data, sent = compress(update, self.compressor, layout, rng)
        self.versions.confirm(answered)
        dense = sent.to_dense()
        if self._keeps_error:
            self.residual = np.subtract(update, dense, out=update)
        vector = layout.rounded(now.model.vector + dense)
        self.versions.append(now.number, data, vector)
        return vector
