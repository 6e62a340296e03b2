"""The server side of every compressed strategy (docs/protocol.md).

Clients send compressed updates. The server turns those of a round into one update of the global
model, which changes by exactly what clients are sent: the update, compressed. They get those that
they missed, or the model (`strategies.compression.sync_protocol`).
"""

import secrets
from abc import abstractmethod
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic.dataclasses import dataclass

from . import server_optimizer as server_optimizers
from .base import (
    Aggregate,
    Broadcast,
    ClientMemory,
    FederatedStrategy,
    Received,
    Reply,
    ReplyError,
    Round,
    Terms,
    Train,
    Update,
    Vector,
)
from .compressed_client import CompressedClient
from .compression.codec import Codec
from .compression.decoded_update import Update as DecodedUpdate
from .compression.decoded_update import Vector as Float32Vector
from .compression.error_feedback import OutOfRangeError, add, check_range, compress
from .compression.floats import Float32
from .compression.sync_protocol import Head, MissedUpdates, Payload, ReplyStatus
from .compression.vector_layout import Layout
from .fedbuff import Exponent, NumRounds, rounds_late, staleness_weight
from .registry import Part, Weights
from .rounds.aggregation import Term
from .rounds.messages import CODEC, DOWNLINK, HEAD, OWN, UPDATES, random_stream
from .rounds.reply_errors import SMALLER_RATES, DivergedReplyError, NormError, ResyncError


@dataclass(kw_only=True, eq=False)
class CompressedStrategy(FederatedStrategy):
    """A strategy whose server and clients exchange compressed updates.

    Subclasses are combinations of compressors: their arguments are fields, from which `make_codec`
    builds the codec, and they may override `combine`.

    Args:
        weights: The clients' weights in the mean: "samples" (n_k), the default of Flower's
            strategies, or "uniform", as in the STC paper and by default in this project's app.
        server_optimizer: Turns the mean update into the change of the model: "none", "sgd", "adam"
            or "yogi", or a table with arguments (`strategies.server_optimizer`).
        max_staleness: Replies that are up to this many rounds late count, as under
            `strategies.fedbuff.FedBuff`; 0 drops late replies.
        staleness: a; a reply that is s rounds late counts with (1 + s)^-a.

    The others are those of Flower's `FedAvg`.

    Attributes:
        codec: How server and clients compress. With the feedback "residual" the
            server adds what it did not send to its next update.
        residual: That, float32 (n,); None before the first round and without error feedback.
    """

    updates_evaluation: ClassVar[bool] = True  # clients evaluate the model that they keep
    paper_weights: ClassVar[Weights] = "uniform"

    server_optimizer: Part = server_optimizers.NONE
    max_staleness: NumRounds = 0
    staleness: Exponent = 0.5

    def __post_init__(self) -> None:
        self.codec = self.make_codec()
        self._clients = CompressedClient(self.codec)
        self.optimizer = server_optimizers.build(self.server_optimizer)
        self.residual: Float32Vector | None = None
        self._versions = MissedUpdates()
        # By node, the round of its last update that was accepted or refused for good, and whether
        # it was refused. Kept for nodes that lost their model, too: they may still hold the update.
        self._settled: dict[int, tuple[int, bool]] = {}
        self._replies: dict[int, Payload] = {}  # by node, the heads of the round's replies

    def combine(self, mean: NDArray[np.float64]) -> Float32Vector:
        """Return the combined update: the mean, as float32, in an array that may be overwritten."""
        return mean.astype(np.float32)

    @property
    def takes_late(self) -> bool:
        """Whether late replies count in a later round."""
        return self.max_staleness > 0

    @abstractmethod
    def make_codec(self) -> Codec:
        """Return how server and clients compress."""

    def __getstate__(self) -> dict[str, Any]:
        """Return the state that outlasts a round."""
        return {**vars(self), "_replies": {}}

    def begin(self, now: Round) -> None:
        """Begin with a model that no client has if it is the initial model, or made elsewhere.

        A training has a number, since the same clients may get messages of others.
        """
        if now.settings.other_app and not self.codec.training:
            self.codec = replace(self.codec, training=1 + secrets.randbits(30))
        if not self._versions.is_current(now.model.vector):
            self._versions.start_from(now.number - 1, now.model.vector)
        self._versions.offer(now.number, self.max_staleness)
        self._replies.clear()

    def broadcast(self, now: Round, node: int) -> Broadcast:
        """Return the updates that the client's model lacks."""
        settled, own = self._settled.get(node, (0, False)), self._versions.following(node)
        head = Head(self.codec.digest, *settled, self._versions.current).encode()
        if own is not None:
            updates = self._versions.updates_since(own)
            # Flower cannot count the bytes of an empty entry.
            return Broadcast({HEAD: head, **({UPDATES: updates} if updates else {})}, full=False)
        return Broadcast(
            {HEAD: head, CODEC: str(self.codec)} if now.settings.other_app else {HEAD: head}
        )

    def client(
        self, received: Received, memory: ClientMemory, train: Train
    ) -> tuple[Update, ClientMemory | None]:
        """Keep the client's copy of the model in step, and send its compressed update."""
        return self._clients.answer(received, memory, train)

    def read(self, now: Round, reply: Reply) -> tuple[Term]:
        """Return the decoded update, all of whose values are in range.

        Raises:
            ResyncError: The client lost its state.
            DivergedReplyError: Its training diverged.
            ReplyError: The payload is not of this round, codec and layout.
        """
        payload, late = self._payload(now, reply)
        layout = now.model.layout
        try:
            update = self.codec.uplink.decode(payload.update, layout)
            update.check(layout.size)
            check_range(update)
        except OutOfRangeError as error:
            raise DivergedReplyError(str(error)) from error
        except Exception as error:  # a compressor of another package may raise or return anything
            raise ReplyError(f"undecodable update: {error}") from error
        self._replies[reply.node] = replace(payload, update=b"")
        return (update.scaled(staleness_weight(late, self.staleness)) if late else update,)

    def update_norm(self, now: Round, terms: Terms, reply: Reply) -> float:
        """Return the norm of the decoded update."""
        (update,) = terms
        assert isinstance(update, DecodedUpdate)
        late = now.number - self._replies[reply.node].server_round
        return update.norm() / staleness_weight(late, self.staleness)

    def step(self, now: Round, aggregate: Aggregate) -> Vector:
        """Return the next model.

        The updates are acknowledged only now: in a round with too few replies they are not used,
        and their clients keep them in their residuals.

        Raises:
            ReplyError: The update is not finite, or beyond what clients may send.
        """
        update = self.combine(aggregate.mean)
        if self.optimizer is not None:
            update = self.optimizer.step(update.astype(np.float64)).astype(np.float32)
        if self.residual is not None:
            update = add(self.residual, update, out=update)  # update plus residual
        rng = random_stream(now.settings.seed, DOWNLINK, 0, now.number)
        try:
            data, sent = compress(update, self.codec.downlink, now.model.layout, rng)
        except OutOfRangeError as error:
            raise ReplyError(f"at the server {error}; {SMALLER_RATES}") from error
        if self.codec.feedback == "residual":
            sent.add_to(update, -1.0)
            self.residual = update  # what was left
        vector = now.model.layout.rounded(sent.added_to(now.model.vector))
        answered = {node: self._replies[node].server_round for node in aggregate.nodes}
        self._versions.confirm(answered)
        self._settled |= {node: (number, False) for node, number in answered.items()}
        self._versions.append(now.number, data, vector)
        return vector

    def on_rejected(self, now: Round, node: int, error: ReplyError) -> None:
        """Send the full model next time to a client that asks for it.

        A client whose update is too long is told so, and drops the residual of that reply: what
        made this update too long would make all later updates too long as well.
        """
        if isinstance(error, ResyncError):
            self._versions.confirmed.pop(node, None)
        if isinstance(error, NormError):
            self._settled[node] = self._replies[node].server_round, True

    def read_evaluation(self, now: Round, reply: Reply) -> Terms:
        """Note that the client has the current version, if it keeps it.

        Raises:
            ResyncError: The client lost its state, and has evaluated nothing.
            ReplyError: The payload is not of this round and codec.
        """
        if OWN in reply.message.content:  # of a client whose mod keeps the model
            self._payload(now, reply)
            if now.settings.other_app and not isinstance(self.codec.downlink, Float32):
                self._versions.confirm_model(reply.node)
        return ()

    def bits_down(self, now: Round, node: int) -> float:
        """Return the formula's bits of the updates that the client lacks, at most the model's."""
        full, missed = super().bits_down(now, node), self._versions.num_missed(node)
        if missed is None:
            return full
        updates = self.missed_updates_bits(missed, now.model.layout)
        return min(updates + 32.0 * now.model.buffer_size, full)

    def bits_up(self, now: Round, node: int) -> float:
        """Return the bits of an update by the formula of the client's compressor."""
        return self.codec.uplink.expected_bits(now.model.layout) + 32.0 * now.model.buffer_size

    def missed_updates_bits(self, count: int, layout: Layout) -> float:
        """Return the formula's bits of ``count`` updates together: H(P(s)) <= s H(P(1))."""
        return count * self.codec.downlink.expected_bits(layout)

    def forget_clients(self) -> None:
        """Send every client the full model next time."""
        self._versions.confirmed.clear()

    def _payload(self, now: Round, reply: Reply) -> tuple[Payload, int]:
        """Return a reply's payload and how many rounds late it is.

        Raises:
            ReplyError: As for `read`, except for what follows the payload's head.
        """
        try:
            payload = Payload.decode(reply.payload)
        except ValueError as error:  # a ReplyError is one, too
            raise ReplyError(f"undecodable update: {error}") from error
        if payload.codec != self.codec.digest:
            raise ReplyError(
                "codec mismatch between client and server: give both the same strategy-args "
                f"(here {self.codec})"
            )
        late = rounds_late(payload.server_round, now.number, self.max_staleness)
        if payload.status == ReplyStatus.NEEDS_MODEL:
            if self._versions.following(reply.node) is None:
                raise ReplyError("the client asks for the model, which it was just sent")
            raise ResyncError("the client lost its state; full model next round")
        if payload.status == ReplyStatus.DIVERGED:
            raise DivergedReplyError("the client's training diverged: NaN, infinity or beyond 2^64")
        return payload, late
