"""The client side of every compressed strategy (docs/protocol.md)."""

from dataclasses import replace

import numpy as np

from .compression.codec import Codec
from .compression.compressor import Compressor
from .compression.error_feedback import OutOfRangeError, add, compress
from .compression.floats import Float32
from .compression.sync_protocol import Head, Payload, ReplyStatus, Version, decode_updates
from .rounds.client_memory import ClientMemory, Vectors
from .rounds.client_messages import Train
from .rounds.local_arrays import (
    REJECT_ABOVE,
    WARN_ABOVE,
    advice,
    taken_back,
)
from .rounds.messages import (
    CODEC,
    HEAD,
    LAST_UPDATE,
    UPDATES,
    UPLINK,
    Received,
    Update,
    refuse_clipping,
)
from .rounds.model import Model, Vector, difference

NEEDS_MODEL = ReplyStatus.NEEDS_MODEL
# The vector that a client keeps.
RESIDUAL = "residual"


class CompressedClient:
    """The client's end, for all clients of a process.

    It keeps the global model that it built last, which is the same for every client that reaches
    its version: clients that share a process build it once, and the next model from it.

    Args:
        codec: The strategy's; without it, messages must name theirs.
    """

    def __init__(self, codec: Codec | None = None) -> None:
        self._codec = codec
        self._built: tuple[Version, Model] | None = None

    def answer(
        self,
        received: Received,
        memory: ClientMemory,
        train: Train,
        uplink: Compressor | None = None,
    ) -> tuple[Update, ClientMemory | None]:
        """Return the client's compressed update, and the memory that it keeps.

        A client that evaluates sends an empty update; in another app it keeps the resulting model.
        If the server names the codec, the client keeps its text, and starts from scratch if it
        changes: then another training has begun. A client that lacks the codec or the model of a
        message asks for both.

        Args:
            received: What the server sent.
            memory: What the client kept.
            train: Runs the handler.
            uplink: Compresses this round's update in place of the codec's; that reads its bytes.

        Raises:
            ValueError: The server's message cannot be read, is not of a later round than the
                training answered last, is of another codec, or has settings for clipping; or the
                client keeps arrays that the server's ``local_arrays`` does not name.
        """
        head = Head.decode(received.take(HEAD))
        refuse_clipping(received.settings)
        text = str(received.entries.get(CODEC, memory.codec))
        if text != memory.codec:
            memory = ClientMemory(codec=text)
        memory.check_round(received)
        codec = self.codec(text)
        digest = codec.digest if codec else head.codec
        reply, model = Payload(ReplyStatus.UPDATE, digest, received.number), None
        if codec is not None and digest == head.codec:
            model = self._current_model(codec, received, memory, head.version)
        elif received.model is not None:
            raise ValueError(
                f"codec mismatch between server and client, whose codec is {codec}: give both the "
                "same strategy and strategy-args"
            )
        if codec is None or model is None:
            return Update(payload=replace(reply, status=NEEDS_MODEL).encode()), None
        trained = train(model)
        # Where the model is sent whole every time, no copy is kept.
        copy = None if isinstance(codec.downlink, Float32) else model.record
        if not received.trains:
            # Without a text, in this project's app, evaluations are not counted: they must not
            # spare a training any bytes that would be.
            kept = replace(memory, model=copy, version=head.version) if text else memory
            return Update(payload=reply.encode()), kept
        assert trained.model is not None
        # Kept in float32, even if the model is float64.
        change = difference(trained.model.vector, model.vector).astype(np.float32, copy=False)
        if text:  # in another app, whose handlers may train from other values
            trained = _checked(trained, change)
        trained = replace(trained, model=None)  # it is not sent, and no longer kept in memory
        try:
            at_hand = codec if uplink is None else replace(codec, uplink=uplink)
            data, vectors = compressed(at_hand, received, memory, head, model, change)
        except OutOfRangeError:
            # The state stays unchanged: an update that is sent and rejected would be added to the
            # next update again.
            return Update(payload=replace(reply, status=ReplyStatus.DIVERGED).encode()), None
        kept = ClientMemory(received.number, vectors, data, copy, head.version, text)
        return replace(trained, payload=replace(reply, update=data).encode()), kept

    def codec(self, text: str) -> Codec | None:
        """Return the codec of a server's text; None without either.

        Raises:
            ValueError: As for `Codec.parse`.
        """
        own = self._codec
        return Codec.parse(text) if own is None else own.of_training(text)

    def _current_model(
        self, codec: Codec, received: Received, memory: ClientMemory, version: Version
    ) -> Model | None:
        """Return the global model; None if the updates sent do not lead to it from this client's.

        It is sent, or built from the client's copy or from the model built last, whichever lacks
        fewer updates.
        """
        updates = received.take(UPDATES) if UPDATES in received.entries else b""
        if received.model is not None or memory.model is None or memory.version is None:
            return received.model
        own = Model.read(memory.model, received.buffer_names)
        starts, last = [(memory.version, own)], self._built
        # A process may have had clients of another run, whose models have other arrays.
        if last and (last[1].layout, last[1].order) == (own.layout, own.order):
            starts = sorted([last, *starts], key=lambda start: -start[0].number)
        built = (_build(codec, have, start, version, updates) for have, start in starts)
        model = next((model for model in built if model is not None), None)
        if model is None:
            return None
        if last is None or last[0] != version:
            self._built = version, model
        if not received.buffers:
            return model
        return Model(model.layout, model.vector, received.buffers, model.order)


def compressed(
    codec: Codec, received: Received, memory: ClientMemory, head: Head, model: Model, change: Vector
) -> tuple[bytes, Vectors]:
    """Return the bytes of a change and the vectors to keep, after the codec's error feedback.

    The sum overwrites the change.

    Raises:
        OutOfRangeError: The change, or what would be sent, is not finite or too large.
    """

    def accepted(vectors: Vectors, pending: bytes) -> Vectors:
        sent = codec.uplink.decode(pending, model.layout).to_dense()
        return {RESIDUAL: np.subtract(vectors[RESIDUAL], sent, out=sent)}  # what was left

    vectors: Vectors = {}
    if codec.feedback == "residual":
        left = memory.settled(head.settled, accepted, refused=head.refused)
        residual = left.get(RESIDUAL, np.zeros(1, np.float32))  # at first it is 0
        if codec.feedback_decay < 1:
            residual = np.float32(codec.feedback_decay) * residual
        vectors = {RESIDUAL: add(residual, change, out=change)}  # update plus residual
        del left, residual  # as large as the model
    elif codec.feedback == "aggregate" and LAST_UPDATE in received.vectors:
        last = received.vectors[LAST_UPDATE].astype(np.float32, copy=False)
        add(-last, change, out=change)
    data, _ = compress(change, codec.uplink, model.layout, received.random_stream(UPLINK))
    return data, vectors


def _checked(trained: Update, change: Vector) -> Update:
    """Return the update, with a note if a client seems to keep an array; ValueError if it does."""
    assert trained.model is not None
    ratio, name = taken_back(trained.model, change)
    if ratio > REJECT_ABOVE:
        raise ValueError(advice(name))
    return replace(trained, note=name) if ratio > WARN_ABOVE else trained


def _build(
    codec: Codec, have: Version, start: Model, version: Version, updates: bytes
) -> Model | None:
    """Return ``start`` plus the updates; None if the result is another version."""
    if have == version:
        return start
    layout, vector, number = start.layout, start.vector, have.number
    for later, data in decode_updates(updates):
        if later > number:
            vector = layout.rounded(codec.downlink.decode(data, layout).added_to(vector))
            number = later
    if Version.of(number, vector) != version:
        return None
    return Model(layout, vector, start.buffers, start.order)
