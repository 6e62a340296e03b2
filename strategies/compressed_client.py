"""The client's end of every compressed strategy (docs/protocol.md).

A mod around the training handler: it brings the client's copy of the model up to date, lets the
handler train it, and sends the compressed change. What it keeps lies in the client's
`context.state`, is changed last, and may be lost at any time: then the client asks for the full
model.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp.typing import ClientAppCallable

from strategies import synced
from strategies.arrays import from_array, from_record, to_record
from strategies.compression.feedback import compress_with_feedback
from strategies.compression.layout import Layout
from strategies.compression.update import Update, Vector
from strategies.raw import raw_array, raw_bytes
from strategies.records import array_record, find, get
from strategies.screening import ARRAYS, CONFIG
from strategies.synced import Entry, Head, Version

# Records of the client's state.
MODEL, FEEDBACK, VERSION = "synced-model", "feedback", "synced-version"

# The version last built in this process. It is the same model for every client that gets there:
# clients that share a process build it once, and the next one from there.
_built: dict[Version, ArrayRecord] = {}

# (update, the model's layout, the server's settings) -> what to send.
Compress = Callable[[Vector, Layout, ConfigRecord], Update]
# (bytes, the model's layout, the server's settings) -> update.
Decode = Callable[[bytes, Layout, ConfigRecord], Update]


@dataclass(frozen=True)
class Codec:
    """What distinguishes one compressed strategy's clients from another's.

    Attributes:
        compress: Compresses the client's update.
        decode: Decodes an update: the server's, and one that ``compress`` made, to take it back.
        error_feedback: Whether what was not sent is added to the next update.
    """

    compress: Compress
    decode: Decode
    error_feedback: bool = True


def train_compressed(
    message: Message, context: Context, call_next: ClientAppCallable, codec: Codec
) -> Message:
    """Handle a message on the client; those that are not for training pass through.

    Raises:
        CodecError: The server's message cannot be read.
        ValueError: The message is older than the last one handled, or training gave values that are
            NaN, infinite or beyond `synced.LARGEST_CHANGE`. The client's state stays as it was.
    """
    if not message.metadata.message_type.startswith("train"):
        return call_next(message, context)
    config = get(message.content, CONFIG, ConfigRecord)
    head = Head.decode(raw_bytes(message.content, synced.SYNC, synced.HEAD))
    server_round = config["server-round"]
    assert isinstance(server_round, int)
    have, last_round = _last_handled(context)
    if server_round <= last_round:
        raise ValueError(f"a message of round {server_round}, after one of round {last_round}")
    arrays = _synchronise(message, context, have, head.version, codec)
    if arrays is None:
        payload = synced.encode_reply(synced.NEEDS_MODEL, 0)
        return Message(RecordDict({synced.UPDATE: _payload(payload)}), reply_to=message)
    named = from_record(arrays)
    layout = Layout.of(named)

    # A record of its own: the model is shared with other clients in this process.
    message.content = RecordDict({ARRAYS: array_record(arrays), CONFIG: config})
    reply = call_next(message, context)
    answer = find(reply.content, ARRAYS, ArrayRecord)
    if answer is None:
        return reply  # nothing to compress; the server will refuse it
    trained = {
        name: from_array(array).astype(np.float32, copy=False)  # a mod may have made it float64
        for name, array in answer.items()
    }
    if Layout.of(trained) != layout:
        raise ValueError("training returned arrays of other names or shapes than the model's")
    update = layout.flatten(trained) - layout.flatten(named)
    if codec.error_feedback:
        residual = _residual(context, layout, config, head.accepted, last_round, codec)
    else:
        residual = np.zeros(layout.size, np.float32)
    sent, residual = compress_with_feedback(
        update, residual, lambda accumulated: codec.compress(accumulated, layout, config)
    )
    if sent.largest() > synced.LARGEST_CHANGE:
        raise ValueError(f"the update changes a weight by {sent.largest():g}")
    data = sent.encode()
    del reply.content[ARRAYS]
    payload = synced.encode_reply(synced.HAS_UPDATE, head.version.number, data)
    reply.content[synced.UPDATE] = _payload(payload)

    context.state[MODEL] = arrays
    context.state[VERSION] = ConfigRecord(
        {
            "number": head.version.number,
            "fingerprint": head.version.fingerprint,
            "round": server_round,
        }
    )
    if codec.error_feedback:
        context.state[FEEDBACK] = array_record(
            {"residual": raw_array(residual.tobytes()), "pending": raw_array(data)}
        )
    return reply


def _last_handled(context: Context) -> tuple[Version | None, int]:
    """Return the version that the client has, None for none, and the round it last answered."""
    if VERSION not in context.state:
        return None, 0
    stored = get(context.state, VERSION, ConfigRecord)
    number, fingerprint, last_round = (stored[key] for key in ("number", "fingerprint", "round"))
    assert isinstance(number, int)
    assert isinstance(fingerprint, int)
    assert isinstance(last_round, int)
    return Version(number, fingerprint), last_round


def _synchronise(
    message: Message, context: Context, have: Version | None, version: Version, codec: Codec
) -> ArrayRecord | None:
    """Return the global model; None where what came does not lead to it from what is here."""
    whole = find(message.content, ARRAYS, ArrayRecord)
    if whole is not None:
        return whole
    chain = synced.decode_chain(raw_bytes(message.content, synced.SYNC, synced.UPDATES))
    if have is None or MODEL not in context.state:
        return None
    ahead = synced.missing(have, chain, version)
    if ahead is None:
        return None
    arrays = get(context.state, MODEL, ArrayRecord)
    if not ahead:
        return arrays
    if version not in _built:
        for near, built in _built.items():
            from_near = synced.missing(near, chain, version)
            if from_near is not None and len(from_near) < len(ahead):
                ahead, arrays = from_near, built
        arrays = _follow(arrays, ahead, message, codec)
        _built.clear()
        _built[version] = arrays
    return _built[version]


def _follow(
    arrays: ArrayRecord, ahead: Sequence[Entry], message: Message, codec: Codec
) -> ArrayRecord:
    """Return the model that the updates turn the client's into."""
    named = from_record(arrays)
    layout = Layout.of(named)
    model = layout.flatten(named)
    config = get(message.content, CONFIG, ConfigRecord)
    for entry in ahead:
        model += codec.decode(entry.update, layout, config).to_dense()
    return to_record(layout.unflatten(model))


def _residual(
    context: Context,
    layout: Layout,
    config: ConfigRecord,
    accepted: int,
    last_round: int,
    codec: Codec,
) -> Vector:
    """Return what was not sent so far, and what was sent in vain.

    The update sent last is pending until the server names it as accepted. It comes back to the
    residual otherwise: the reply was lost, late or refused. Where the server has accepted a later
    one than this state knows of, the state is an old one that came back: what it holds may have
    been counted, so it is dropped.
    """
    if FEEDBACK not in context.state or accepted > last_round:
        return np.zeros(layout.size, np.float32)
    stored = get(context.state, FEEDBACK, ArrayRecord)
    residual = np.frombuffer(stored["residual"].data, np.float32)
    if len(residual) != layout.size:
        raise ValueError(f"the residual has {len(residual)} entries, the model {layout.size}")
    if last_round == accepted:
        return residual
    return residual + codec.decode(stored["pending"].data, layout, config).to_dense()


def _payload(data: bytes) -> ArrayRecord:
    return array_record({synced.PAYLOAD: raw_array(data)})
