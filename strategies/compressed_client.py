"""The client's end of every compressed strategy (docs/protocol.md).

It wraps the training handler: it brings the client's copy of the model up to date, lets the handler
train it, and sends the compressed change. What it keeps is in the client's `context.state`, which
is changed last and may be lost at any time: then the client asks for the full model.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp.typing import ClientAppCallable

from strategies.aggregation import split
from strategies.compression.compressor import Compressor
from strategies.compression.error_feedback import (
    DivergedError,
    ErrorFeedback,
    Memory,
    check_range,
    compress,
)
from strategies.compression.sync_protocol import (
    ModelUpdate,
    ReplyStatus,
    Version,
    decode_updates,
    encode_reply,
    missing_updates,
)
from strategies.compression.vector_layout import Layout
from strategies.flower_arrays import (
    array_record,
    find_record,
    from_array,
    from_record,
    get_record,
    raw_array,
    to_record,
)
from strategies.packed_records import BUFFERS, pack_reply, unpack_message
from strategies.reply_validation import ARRAYS, CONFIG

# Records of the client's state. The last has the memory's vectors, and the bytes sent last.
MODEL, VERSION, FEEDBACK = "synced-model", "synced-version", "error-feedback"
PENDING = "pending"

# The version built last, with its model. It is the same model for every client that reaches it, so
# clients that share a process build it once, and the next one from there.
LastBuilt = dict[Version, ArrayRecord]


@dataclass(frozen=True)
class _Progress:
    """How far a client has come.

    Attributes:
        version: The version of the model that it has, None for none.
        last_round: The round that it last answered with an update, 0 for none.
        memory_since: The round whose update was the first made with its memory.
    """

    version: Version | None = None
    last_round: int = 0
    memory_since: int = 0

    @classmethod
    def of(cls, context: Context) -> "_Progress":
        """Return what the client's state says."""
        if VERSION not in context.state:
            return cls()
        stored = get_record(context.state, VERSION, ConfigRecord)
        keys = ("number", "fingerprint", "round", "memory-since")
        number, fingerprint, last_round, since = (int(str(stored[key])) for key in keys)
        return cls(Version(number, fingerprint), last_round, since)


def train_compressed(
    message: Message,
    context: Context,
    call_next: ClientAppCallable,
    uplink: Callable[[int], Compressor],
    downlink: Compressor,
    feedback: ErrorFeedback,
    last_built: LastBuilt,
) -> Message:
    """Handle a training message on the client; other messages pass through.

    Training that diverges is reported to the server, and the client's state stays as it was, that
    of the handler included: an update that is sent and rejected would be added to the next one
    again.

    Args:
        message: The server's message.
        context: The client's context.
        call_next: The handler that trains.
        uplink: Returns what compresses the client's update in a round.
        downlink: Decodes the server's updates.
        feedback: What becomes of what compression leaves out.
        last_built: Of the clients in this process; changed.

    Raises:
        ValueError: The server's message cannot be read or is older than the last one handled, or
            training returned other arrays. The client's state stays as it was.
    """
    if not message.metadata.message_type.startswith("train"):
        return call_next(message, context)
    config, head, updates = unpack_message(message.content)
    server_round = config["server-round"]
    if not isinstance(server_round, int) or not 0 < server_round < 2**32:
        raise ValueError(f"server-round = {server_round!r}: not a whole number of 32 bits above 0")
    done = _Progress.of(context)
    if server_round <= done.last_round:
        raise ValueError(f"a message of round {server_round}, after one of round {done.last_round}")
    arrays = _synced_model(
        message, config, updates, context, done.version, head.version, downlink, last_built
    )
    if arrays is None:
        return _reply(message, ReplyStatus.NEEDS_MODEL, server_round)
    buffers = _buffer_names(config)
    model = from_record(arrays)
    layout = Layout.of(split(model, buffers)[0])

    before = context.state.copy()  # the handler keeps its own there, such as momentum
    # Records of its own: other clients in this process share the model.
    message.content = RecordDict({ARRAYS: array_record(arrays), CONFIG: config})
    reply = call_next(message, context)
    answer = find_record(reply.content, ARRAYS, ArrayRecord)
    if answer is None:
        return reply  # nothing to compress; the server rejects it
    trained = {
        name: from_array(array).astype(np.float32, copy=False)  # a mod may have made it float64
        for name, array in split(answer, buffers)[0].items()
    }
    if Layout.of(trained) != layout or len(answer) != len(model):
        raise ValueError("training returned arrays of other names or shapes than the model's")
    update = layout.flatten(trained) - layout.flatten(model)
    memory = _memory(context, layout, head.accepted, done, uplink, feedback)
    is_new = memory is None
    if memory is None:
        memory = {name: np.zeros(layout.size, np.float32) for name in feedback.memories}
    to_send, memory = feedback.to_send(update, memory)
    try:
        generator = _generator(config, context)
        data, sent = compress(to_send, uplink(server_round), layout, generator)
        check_range(sent)
    except DivergedError:
        context.state = before
        return _reply(message, ReplyStatus.DIVERGED, server_round)
    del reply.content[ARRAYS]
    if buffers:
        reply.content[BUFFERS] = array_record({name: answer[name] for name in buffers})
    is_first = is_new and feedback.keeps_estimates
    status = ReplyStatus.FIRST_UPDATE if is_first else ReplyStatus.UPDATE
    pack_reply(reply.content, encode_reply(status, server_round, data))

    context.state[MODEL] = arrays
    context.state[VERSION] = ConfigRecord(
        {
            "number": head.version.number,
            "fingerprint": head.version.fingerprint,
            "round": server_round,
            "memory-since": server_round if is_new else done.memory_since,
        }
    )
    if feedback.memories:
        kept = {name: raw_array(memory[name].tobytes()) for name in feedback.memories}
        context.state[FEEDBACK] = array_record({**kept, PENDING: raw_array(data)})
    return reply


def _synced_model(
    message: Message,
    config: ConfigRecord,
    encoded_updates: bytes | None,
    context: Context,
    have: Version | None,
    version: Version,
    downlink: Compressor,
    last_built: LastBuilt,
) -> ArrayRecord | None:
    """Return the global model; None if the updates sent do not lead to it from this client's."""
    full = find_record(message.content, ARRAYS, ArrayRecord)
    if full is not None:
        return full
    if encoded_updates is None:
        raise ValueError("a message with neither updates nor the model")
    updates = decode_updates(encoded_updates)
    if have is None or MODEL not in context.state:
        return None
    missing = missing_updates(have, updates, version)
    if missing is None:
        return None
    arrays = get_record(context.state, MODEL, ArrayRecord)
    if missing:
        if version not in last_built:
            for built_version, built in last_built.items():
                from_built = missing_updates(built_version, updates, version)
                if from_built is not None and len(from_built) < len(missing):
                    missing, arrays = from_built, built
            arrays = _apply(missing, arrays, downlink, _buffer_names(config))
            last_built.clear()
            last_built[version] = arrays
        arrays = last_built[version]
    buffers = find_record(message.content, BUFFERS, ArrayRecord)
    return arrays if buffers is None else array_record({**arrays, **buffers})


def _apply(
    updates: Sequence[ModelUpdate],
    arrays: ArrayRecord,
    downlink: Compressor,
    buffers: Sequence[str],
) -> ArrayRecord:
    """Return the model that the updates turn ``arrays`` into; buffers stay as they are."""
    model = from_record(arrays)
    layout = Layout.of(split(model, buffers)[0])
    vector = layout.flatten(model)
    for update in updates:
        vector += downlink.decode(update.data, layout).to_dense()
    return to_record({**model, **layout.unflatten(vector)})


def _buffer_names(config: ConfigRecord) -> list[str]:
    """Return the names of the arrays that are not compressed."""
    names = config.get(BUFFERS, [])
    assert isinstance(names, list)
    return [str(name) for name in names]


def _memory(
    context: Context,
    layout: Layout,
    accepted: int,
    done: _Progress,
    uplink: Callable[[int], Compressor],
    feedback: ErrorFeedback,
) -> Memory | None:
    """Return the client's memory, None for an empty one.

    The update sent last is pending until the server names it as accepted. Otherwise its reply was
    lost, late or rejected, and the memory stays as it was before it. Where the server has accepted
    a later one than this state knows of, the state is an old copy: what it holds may have been
    counted, so it is dropped. So is an estimate that began with an update that was not accepted:
    the server has an older one, or none.
    """
    is_unknown = feedback.keeps_estimates and accepted < done.memory_since
    if FEEDBACK not in context.state or accepted > done.last_round or is_unknown:
        return None
    stored = get_record(context.state, FEEDBACK, ArrayRecord)
    memory = {name: np.frombuffer(stored[name].data, np.float32) for name in feedback.memories}
    for name, vector in memory.items():
        if len(vector) != layout.size:
            raise ValueError(f"the {name} has {len(vector)} entries, the model {layout.size}")
    if done.last_round != accepted:
        return memory
    return feedback.accepted(memory, uplink(done.last_round).decode(stored[PENDING].data, layout))


def _generator(config: Mapping[str, object], context: Context) -> np.random.Generator:
    """Return the client's random numbers for the compressor: from seed, round and client."""
    numbers = [config.get("seed", 0), config["server-round"]]
    numbers.append(context.node_config.get("partition-id", 0))
    return np.random.default_rng([int(str(number)) for number in numbers])


def _reply(message: Message, status: ReplyStatus, server_round: int) -> Message:
    """Return a reply without an update."""
    content = RecordDict()
    pack_reply(content, encode_reply(status, server_round))
    return Message(content, reply_to=message)
