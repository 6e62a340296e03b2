"""The client side of every compressed strategy (docs/protocol.md)."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from flwr.app import Context, Message
from flwr.clientapp.typing import ClientAppCallable

from .client_memory import ClientMemory, Vectors
from .client_messages import Train, around_handler
from .codec import Codec
from .compression.error_feedback import OutOfRangeError, compress
from .compression.float32 import Float32
from .compression.sync_protocol import Head, Payload, ReplyStatus, Version, decode_updates
from .local_arrays import (
    REJECT_ABOVE,
    WARN_ABOVE,
    advice,
    taken_back,
    with_local_arrays,
)
from .messages import OWN, Received, Update, refuse_clipping
from .model import Model, difference
from .random_streams import UPLINK

# Entries of the strategies' own record: the head, the updates that the client missed, and, with the
# model, the text of what compresses them.
HEAD, UPDATES, CODEC = "head", "updates", "codec"

# The model built last, and its version. It is the same for every client that reaches it, so clients
# that share a process build it once, and the next model from it.
_last_built: dict[Version, Model] = {}


def compression_mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Handle a message of any compressed strategy: the mod for ClientApps of other apps.

    The server's first message names the codec, and the client keeps it. Messages without the
    strategies' own record pass through.

        app = ClientApp(mods=[compression_mod])
    """
    call_next = with_local_arrays(message, call_next)
    if OWN not in message.content:
        return call_next(message, context)

    def end(
        received: Received, memory: ClientMemory, train: Train
    ) -> tuple[Update, ClientMemory | None]:
        return answer(Codec.parse, received, memory, train)

    return around_handler(end, message, context, call_next)


def answer(
    codec_of: Callable[[str], Codec | None], received: Received, memory: ClientMemory, train: Train
) -> tuple[Update, ClientMemory | None]:
    """Return the client's compressed update, and the memory that it keeps.

    A client that evaluates sends an empty update; in another app it keeps the resulting model. If
    the server names the codec, the client keeps its text, and starts from scratch if it changes:
    then another training has begun. A client that lacks the codec or the model of a message asks
    for both. Training that diverges is reported, and the client's state stays unchanged: an update
    that is sent and rejected would be added to the next update again.

    Args:
        codec_of: Returns the codec of a text, which is empty if none was sent; None if the text is
            required.
        received: What the server sent.
        memory: What the client kept.
        train: Runs the handler.

    Raises:
        ValueError: The server's message cannot be read, is not of a later round than the training
            answered last, is of another codec, or has settings for clipping; or the client keeps
            arrays that the server's ``local_arrays`` does not name.
    """
    head = Head.decode(received.take(HEAD))
    refuse_clipping(received.settings)

    def reply(status: ReplyStatus, data: bytes = b"") -> bytes:
        digest = codec.digest if codec else head.codec
        return Payload(status, digest, received.number, data).encode()

    text = str(received.entries.get(CODEC, memory.codec))
    if text != memory.codec:
        memory = ClientMemory(codec=text)
    memory.check_round(received)
    codec = codec_of(text)
    if codec is None or codec.digest != head.codec:
        if received.model is None:
            return Update(payload=reply(ReplyStatus.NEEDS_MODEL)), None
        raise ValueError(
            f"codec mismatch between server and client, whose codec is {codec}: give both the same "
            "strategy and strategy-args"
        )
    updates = received.take(UPDATES) if UPDATES in received.entries else b""
    model = received.model or _synced(codec, received, memory, head.version, updates)
    if model is None:
        return Update(payload=reply(ReplyStatus.NEEDS_MODEL)), None
    copy = None if isinstance(codec.downlink, Float32) else model.record  # sent whole every time
    trained = train(model)
    if not received.trains:
        # Without a text, in this project's app, evaluations are not counted: they must not spare
        # a training any bytes that would be.
        kept = replace(memory, model=copy, version=head.version) if text else memory
        return Update(payload=reply(ReplyStatus.UPDATE)), kept
    assert trained.model is not None
    # Kept in float32, even if the model is float64.
    change = difference(trained.model.vector, model.vector).astype(np.float32, copy=False)
    if text:  # in another app, whose handlers may train from other values
        ratio, name = taken_back(trained.model, change)
        if ratio > REJECT_ABOVE:
            raise ValueError(advice(name))
        if ratio > WARN_ABOVE:
            trained = replace(trained, note=name)

    def take(vectors: Vectors, pending: bytes) -> Vectors:
        sent = codec.uplink_in(memory.last_round).decode(pending, model.layout)
        return codec.feedback.accepted(vectors, sent)

    vectors = memory.settled(head.settled, take, refused=head.refused) or {
        name: np.zeros_like(change) for name in codec.feedback.memories
    }
    to_send, vectors = codec.feedback.to_send(change, vectors)
    try:
        uplink = codec.uplink_in(received.number)
        # Another package's rule may compute in float64.
        exact = to_send.astype(np.float32, copy=False)
        data, _ = compress(exact, uplink, model.layout, received.random_stream(UPLINK))
    except OutOfRangeError:
        return Update(payload=reply(ReplyStatus.DIVERGED)), None
    vectors = {name: vector.astype(np.float32, copy=False) for name, vector in vectors.items()}
    kept = ClientMemory(received.number, vectors, data, copy, head.version, text)
    return replace(trained, model=None, payload=reply(ReplyStatus.UPDATE, data)), kept


def _synced(
    codec: Codec, received: Received, memory: ClientMemory, version: Version, updates: bytes
) -> Model | None:
    """Return the global model; None if the updates sent do not lead to it from this client's."""
    if memory.model is None or memory.version is None:
        return None
    own = Model.read(memory.model, received.buffer_names)
    # A process may have had clients of another run, whose models have other arrays.
    starts = [
        (have, start)
        for have, start in _last_built.items()
        if (start.layout, start.order) == (own.layout, own.order)
    ]
    starts.append((memory.version, own))
    starts.sort(key=lambda start: -start[0].number)  # the fewest updates first
    built = (_build(codec, have, start, version, updates) for have, start in starts)
    model = next((model for model in built if model is not None), None)
    if model is not None and version not in _last_built:
        _last_built.clear()
        _last_built[version] = model
    if model is None or not received.buffers:
        return model
    return Model(model.layout, model.vector, received.buffers, model.order)


def _build(
    codec: Codec, have: Version, start: Model, version: Version, updates: bytes
) -> Model | None:
    """Return ``start`` plus the updates; None if the result is another version."""
    if have == version:
        return start
    layout, vector, number = start.layout, start.vector, have.number
    for later, data in decode_updates(updates):
        if later > number:
            vector = layout.rounded(vector + codec.downlink.decode(data, layout).to_dense())
            number = later
    if Version.of(number, vector) != version:
        return None
    return Model(layout, vector, start.buffers, start.order)
