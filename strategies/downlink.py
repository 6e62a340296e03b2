"""How a compressed strategy's server sends the model to clients: two ways (docs/protocol.md).

`SharedUpdates` makes one update per round, which all clients get. `OwnUpdates` makes an update for
each client that takes part, with all that its model lacks. `missed_updates` keeps which updates
a client has, and which are still kept.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress

import numpy as np

from strategies.compression.compressor import Compressor
from strategies.compression.decoded_update import Vector as Float32Vector
from strategies.compression.error_feedback import OutOfRangeError, add, check_contraction, compress
from strategies.compression.sync_protocol import Version, encode_update
from strategies.compression.vector_layout import Layout
from strategies.missed_updates import MissedUpdates
from strategies.model import Vector
from strategies.random_streams import DOWNLINK, random_stream
from strategies.rounds import Round


class Downlink(ABC):
    """Keeps clients' models in step, on the server.

    Args:
        compressor: Compresses what clients are sent.

    Attributes:
        layout: The model's; None before the first round.
        residual: What no client has been sent yet, float32 (n,). None before the first round,
            without error feedback, and if clients get individual updates.
        settled: By node, the round of its last accepted update, or the round after an update that
            was refused for good. Kept for nodes that lost their model, too: they may still hold the
            update that this settles.
    """

    def __init__(self, compressor: Compressor) -> None:
        self.compressor = compressor
        self.residual: Float32Vector | None = None
        self.settled: dict[int, int] = {}
        self.layout: Layout | None = None

    @abstractmethod
    def begin(self, now: Round, max_staleness: int) -> None:
        """Called before the messages of a round, whose replies may be this many rounds late."""

    @abstractmethod
    def sent_to(self, now: Round, node: int) -> tuple[Version, bytes | None]:
        """Return the version that a client will have, and the updates to it; None for the model."""

    @abstractmethod
    def needs_model(self, node: int) -> bool:
        """Return whether a client is sent the full model."""

    @abstractmethod
    def step(self, now: Round, update: Float32Vector, answered: Mapping[int, int]) -> Vector:
        """Return the next model; confirm, by node, the rounds of the replies used in it.

        Raises:
            OutOfRangeError: The update is not finite, or beyond what clients may send.
        """

    @abstractmethod
    def confirm_evaluation(self, node: int) -> None:
        """Record that a client has the model that it was sent to evaluate."""

    @abstractmethod
    def forget(self, node: int) -> None:
        """Send a client the full model next time."""

    @abstractmethod
    def forget_all(self) -> None:
        """Send every client the full model next time."""

    @abstractmethod
    def num_updates(self, node: int) -> int | None:
        """Return how many updates a client is sent; None for the model."""


class SharedUpdates(Downlink):
    """One update per round, by which exactly the model changes; clients get those that they missed.

    Args:
        compressor: As in `Downlink`.
        keeps_error: Whether what it leaves out is sent later.
    """

    def __init__(self, compressor: Compressor, *, keeps_error: bool) -> None:
        super().__init__(compressor)
        self._keeps_error = keeps_error
        self.versions = MissedUpdates()

    def begin(self, now: Round, max_staleness: int) -> None:
        """Begin with a model that no client has: the initial model, or one made elsewhere."""
        vector = now.model.vector
        if self.layout != now.model.layout or not self.versions.is_current(vector):
            self.layout = now.model.layout
            self.versions.start_from(now.number - 1, vector)
        self.versions.offer(now.number, max_staleness)

    def sent_to(self, now: Round, node: int) -> tuple[Version, bytes | None]:
        """Return the current version, and the updates since the client's."""
        own = self.versions.following(node)
        updates = None if own is None else self.versions.updates_since(own)
        return self.versions.current, updates

    def needs_model(self, node: int) -> bool:
        """Return whether the updates since the client's version are no longer kept."""
        return self.versions.following(node) is None

    def step(self, now: Round, update: Float32Vector, answered: Mapping[int, int]) -> Vector:
        """Return the model plus exactly what clients will be sent."""
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

    def confirm_evaluation(self, node: int) -> None:
        """Record that the client has the current version."""
        self.versions.confirm_model(node)

    def forget(self, node: int) -> None:
        """Send a client the full model next time."""
        self.versions.confirmed.pop(node, None)

    def forget_all(self) -> None:
        """Send every client the full model next time."""
        self.versions.confirmed.clear()

    def num_updates(self, node: int) -> int | None:
        """Return how many updates the client missed; None if it has no model."""
        return self.versions.num_missed(node)


class OwnUpdates(Downlink):
    """An update for each client: the difference between the model and the client's.

    What the compressor leaves out stays in that difference, and so in the next update. The model is
    changed by the whole mean; clients train from their own models, which lag behind it (as in
    MCM: C. Philippenko, A. Dieuleveut: Preserved central model for faster bidirectional
    compression in distributed settings. NeurIPS 2021, arXiv 2102.12528). The server keeps each
    client's model. A client whose last reply did not count is sent the full model: the server
    cannot know whether it got the update.
    """

    def __init__(self, compressor: Compressor) -> None:
        super().__init__(compressor)
        check_contraction("downlink", compressor)
        self._models: dict[int, Vector] = {}  # by node, of clients whose last reply counted
        self._offered: dict[int, Vector] = {}  # by node, of those that have not replied yet
        self._whole: set[int] = set()  # the nodes that are sent the full model in this round
        self._num_sent = 0

    def begin(self, now: Round, max_staleness: int) -> None:
        """Begin with clients that have no model if its layout has changed."""
        if self.layout != now.model.layout:
            self.layout = now.model.layout
            self.forget_all()
        self._whole.clear()
        self._num_sent = 0

    def sent_to(self, now: Round, node: int) -> tuple[Version, bytes | None]:
        """Return the version of the client's next model, and the update to it."""
        self._num_sent += 1  # the streams follow the clients' order, since node ids are random
        vector, own = now.model.vector, self._models.pop(node, None)
        if own is not None:
            rng = random_stream(now.settings.seed, DOWNLINK, self._num_sent, now.number)
            lacks = (vector - own).astype(np.float32, copy=False)
            with suppress(OutOfRangeError):  # else the model was changed elsewhere
                data, sent = compress(lacks, self.compressor, now.model.layout, rng)
                self._offered[node] = now.model.layout.rounded(own + sent.to_dense())
                version = Version.of(now.number, self._offered[node])
                return version, encode_update(now.number, data)
        self._whole.add(node)
        self._offered[node] = vector
        return Version.of(now.number, vector), None

    def needs_model(self, node: int) -> bool:
        """Return whether the client was sent the full model in this round."""
        return node in self._whole

    def step(self, now: Round, update: Float32Vector, answered: Mapping[int, int]) -> Vector:
        """Return the model plus the whole update."""
        for node in answered:
            self._models[node] = self._offered.pop(node)
        return now.model.layout.rounded(now.model.vector + update)

    def confirm_evaluation(self, node: int) -> None:
        """Do nothing: clients are sent the full model to evaluate, and keep their own."""

    def forget(self, node: int) -> None:
        """Send a client the full model next time."""
        self._models.pop(node, None)

    def forget_all(self) -> None:
        """Send every client the full model next time."""
        self._models.clear()

    def num_updates(self, node: int) -> int | None:
        """Return 1; None for the model."""
        return None if node in self._whole else 1
