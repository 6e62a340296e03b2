"""The client's end of every compressed strategy (docs/protocol.md): `train_compressed`.

It wraps the training handler in six steps: read the message, bring the copy of the model up to
date, train, settle the memory of the error feedback, compress, keep the state and reply.
"""

import numpy as np
from flwr.app import ArrayRecord, Context, Message, RecordDict
from flwr.clientapp.typing import ClientAppCallable

from strategies.aggregation import without
from strategies.client_state import ClientState, LastBuilt, synced_model
from strategies.codec import Codec
from strategies.compressed_messages import BUFFERS, TrainMessage, pack_reply, read_train_message
from strategies.compression.decoded_update import Vector
from strategies.compression.error_feedback import Memory, OutOfRangeError, check_range, compress
from strategies.compression.float32 import Float32
from strategies.compression.sync_protocol import Payload, ReplyStatus
from strategies.compression.vector_layout import Layout
from strategies.flower_arrays import array_record, find_record, from_array, from_record
from strategies.random_streams import UPLINK, random_stream
from strategies.reply_validation import ARRAYS, CONFIG


def train_compressed(
    message: Message,
    context: Context,
    call_next: ClientAppCallable,
    codec: Codec,
    last_built: LastBuilt,
) -> Message:
    """Handle a training message on the client; other messages pass through.

    Training that diverges is reported to the server, and the client's state stays as it was, that
    of the handler included: an update that is sent and rejected would be added to the next one
    again.

    Args:
        message: The server's message.
        context: The client's context; its state is changed last.
        call_next: The handler that trains.
        codec: What both ends compress with.
        last_built: The model built last for the clients in this process; it is changed here.

    Raises:
        ValueError: The server's message cannot be read, is older than the last one handled or of
            another codec, or training returned other arrays. The client's state stays as it was.
    """
    if not message.metadata.message_type.startswith("train"):
        return call_next(message, context)
    state = ClientState.read(context.state)
    received = read_train_message(message, codec, state.last_round)
    model = synced_model(received, state, codec.downlink, last_built)
    if model is None:
        return _reply_without_update(message, received, codec, ReplyStatus.NEEDS_MODEL)
    trained_arrays = without(from_record(model), received.buffers)
    layout = Layout.of(trained_arrays)
    before = context.state.copy()  # the handler keeps its own there, such as momentum
    reply, trained = train(received, model, layout, message, context, call_next)
    if trained is None:
        return reply  # nothing to compress; the server rejects it
    update = trained - layout.flatten(trained_arrays)
    memory = settled_memory(received, state, codec, layout)
    is_new = memory is None
    memory = memory or {name: np.zeros_like(update) for name in codec.feedback.memories}
    to_send, memory = codec.feedback.to_send(update, memory)
    # Another package's rule may compute in float64.
    to_send = to_send.astype(np.float32, copy=False)
    memory = {name: one.astype(np.float32, copy=False) for name, one in memory.items()}
    try:
        uplink = codec.uplink_in(received.server_round)
        path = received.config.get("seed", 0), context.node_config.get("partition-id", 0)
        seed, client = (int(str(number)) for number in path)
        rng = random_stream(seed, UPLINK, client, received.server_round)
        data, sent = compress(to_send, uplink, layout, rng)
        check_range(sent)
    except OutOfRangeError:
        context.state = before
        return _reply_without_update(message, received, codec, ReplyStatus.DIVERGED)
    is_first = is_new and codec.feedback.keeps_estimates
    status = ReplyStatus.FIRST_UPDATE if is_first else ReplyStatus.UPDATE
    payload = Payload(status, codec.digest, received.server_round, data)
    pack_reply(reply.content, payload)
    since = received.server_round if is_new else state.memory_since
    copy = None if isinstance(codec.downlink, Float32) else model  # which is sent whole every time
    kept = ClientState(copy, received.head.version, received.server_round, since, memory, data)
    kept.write(context.state)
    return reply


def train(
    received: TrainMessage,
    model: ArrayRecord,
    layout: Layout,
    message: Message,
    context: Context,
    call_next: ClientAppCallable,
) -> tuple[Message, Vector | None]:
    """Return the handler's reply without its trained arrays, and these, float32 (n,).

    They are None where the reply has no arrays.

    Raises:
        ValueError: Training returned arrays of other names or shapes than the model's.
    """
    # Records of its own: other clients in this process share the model.
    message.content = RecordDict({ARRAYS: array_record(model), CONFIG: received.config})
    reply = call_next(message, context)
    answer = find_record(reply.content, ARRAYS, ArrayRecord)
    if answer is None:
        return reply, None
    trained = {
        name: from_array(array).astype(np.float32, copy=False)  # a mod may have made it float64
        for name, array in without(answer, received.buffers).items()
    }
    if Layout.of(trained) != layout or len(answer) != len(model):
        raise ValueError("training returned arrays of other names or shapes than the model's")
    del reply.content[ARRAYS]
    if received.buffers:
        reply.content[BUFFERS] = array_record({name: answer[name] for name in received.buffers})
    return reply, layout.flatten(trained)


def settled_memory(
    received: TrainMessage, state: ClientState, codec: Codec, layout: Layout
) -> Memory | None:
    """Return the client's memory now that the server says what it accepted; None for an empty one.

    The update sent last is pending until the server names it as accepted. Otherwise its reply was
    lost, late or rejected, and the memory still has what it carried. Where the server has accepted
    a later one than this state knows of, the state is an old copy: what it holds may have been
    counted, so it is dropped. So is an estimate that began with an update that was not accepted:
    the server has an older one, or none. And so is the memory from which an update was made that
    was too long: it would make every later one too long as well.
    """
    accepted = received.head.accepted
    is_unknown = codec.feedback.keeps_estimates and accepted < state.memory_since
    is_refused = state.memory_since <= received.refused
    if state.memory is None or accepted > state.last_round or is_unknown or is_refused:
        return None
    if state.last_round != accepted:
        return state.memory
    sent = codec.uplink_in(state.last_round).decode(state.pending, layout)
    return codec.feedback.accepted(state.memory, sent)


def _reply_without_update(
    message: Message, received: TrainMessage, codec: Codec, status: ReplyStatus
) -> Message:
    content = RecordDict()
    pack_reply(content, Payload(status, codec.digest, received.server_round))
    return Message(content, reply_to=message)
