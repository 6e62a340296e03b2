"""Messages on the client: a strategy's client function, around a ClientApp's handlers.

The message is read, the handler is called, and its reply is written.
"""

from collections.abc import Callable, Mapping

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp.typing import ClientAppCallable

from strategies.client_memory import ClientMemory
from strategies.flower_arrays import array_record, from_record, to_record
from strategies.local_arrays import NOTE
from strategies.messages import (
    ARRAYS,
    ARRAYS_KEY,
    BUFFERS,
    LINK,
    NUM_EXAMPLES,
    PAYLOAD,
    SERVER_ROUND,
    UPDATE,
    Received,
    Update,
    named_or_only,
)
from strategies.model import Model, Vector

# Trains a model and returns the result; more vectors are passed to the handler by name.
Train = Callable[..., Update]
# What a strategy does on the client: (received, memory, train) -> (update, the memory to keep).
# If the memory is None the client's whole state stays unchanged, the handler's included.
ClientEnd = Callable[[Received, ClientMemory, Train], tuple[Update, ClientMemory | None]]


class NoUpdateError(Exception):
    """The handler's reply has no arrays, or is an error; it is sent to the server unchanged."""


def around_handler(
    end: ClientEnd, message: Message, context: Context, call_next: ClientAppCallable
) -> Message:
    """Handle a message by a strategy's client function. The client's state is changed last.

    Raises:
        ValueError: The message cannot be read, training returned arrays of other names or shapes
            than the model's, or the strategy's client function raised.
    """
    name, settings = _settings(message.content)
    received, memory = _received(message, context, settings), ClientMemory.read(context.state)
    key = str(received.settings.get(ARRAYS_KEY, ARRAYS))
    before = context.state.copy()  # the handler keeps its own there, such as momentum
    reply: Message | None = None

    def train(model: Model, vectors: Mapping[str, Vector] | None = None) -> Update:
        nonlocal reply
        # A separate record: other clients in this process share the model.
        content = RecordDict({key: array_record(model.record), name: received.settings})
        for own, vector in (vectors or {}).items():
            content[own] = to_record(model.layout.unflatten(vector))
        message.content = content
        reply = call_next(message, context)
        if reply.has_content() and not received.trains:
            for record in reply.content.array_records:  # the server does not read them
                del reply.content[record]
            return Update()
        if not reply.has_content() or not reply.content.array_records:
            raise NoUpdateError
        return _take_update(reply.content, key, model)

    try:
        update, kept = end(received, memory, train)
    except NoUpdateError:
        assert reply is not None
        return reply
    if kept is None:
        context.state = before
        reply = None
    if reply is None:
        reply = Message(RecordDict(), reply_to=message)
    _write_update(reply.content, key, update)
    if kept is not None:
        kept.write(context.state)
    return reply


def _settings(content: RecordDict) -> tuple[str, ConfigRecord]:
    """Return the name and a copy of a message's settings."""
    for name, record in content.config_records.items():
        if SERVER_ROUND in record:
            return name, record.copy()
    raise ValueError(f"no ConfigRecord with {SERVER_ROUND!r}")


def _received(message: Message, context: Context, settings: ConfigRecord) -> Received:
    names = settings.get(BUFFERS, [])
    buffers = tuple(map(str, names)) if isinstance(names, list) else ()
    found = dict(message.content.array_records)
    complete = found.pop(str(settings.get(ARRAYS_KEY, ARRAYS)), None)
    beside = found.pop(BUFFERS, ArrayRecord())
    client = context.node_config.get("partition-id", context.node_id)
    return Received(
        number=int(str(settings[SERVER_ROUND])),
        trains=message.metadata.message_type.startswith("train"),
        settings=settings,
        model=None if complete is None else Model.read(complete, buffers),
        buffers=from_record(beside),
        buffer_names=buffers,
        vectors={name: Model.read(record).vector for name, record in found.items()},
        seed=int(str(settings.get("seed", 0))),
        client=int(str(client)),
        link=str(settings.pop(LINK, context.node_config.get(LINK, ""))),
    )


def _take_update(content: RecordDict, key: str, model: Model) -> Update:
    """Return the update in a handler's reply to a model, whose record of arrays is taken out."""
    name, record = named_or_only(content, key, ArrayRecord)
    del content[name]  # `_write_update` puts it back if it is sent
    arrays, layout = from_record(record), model.layout
    shapes = {own: array.shape for own, array in arrays.items() if own in layout.names}
    expected = dict(zip(layout.names, layout.shapes, strict=True))
    if set(arrays) != set(model.order) or shapes != expected:
        raise ValueError("training returned arrays of other names or shapes than the model's")
    # A mod may have made them float64.
    buffers = {own: arrays[own] for own in model.buffers}
    trained = Model(layout, layout.flatten(arrays), buffers, model.order)
    trained.record = record
    metrics = next(iter(content.metric_records.values()), MetricRecord())
    return Update(trained, buffers, float(str(metrics.get(NUM_EXAMPLES, 0))))


def _write_update(content: RecordDict, key: str, update: Update) -> None:
    if update.note:
        content[NOTE] = ConfigRecord({"array": update.note})
    if update.model is not None:
        content[key] = update.model.record
    elif update.buffers:
        content[BUFFERS] = to_record(update.buffers)
    if update.payload is not None:
        content[UPDATE] = ConfigRecord({PAYLOAD: update.payload})
    for name, vector in update.vectors.items():
        assert update.model is not None
        content[name] = to_record(update.model.layout.unflatten(vector))
