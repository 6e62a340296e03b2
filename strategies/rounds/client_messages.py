"""Messages on the client: a strategy's client function, around a ClientApp's handlers.

The message is read, the handler is called, and its reply is written.
"""

from collections.abc import Callable, Mapping

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp.typing import ClientAppCallable

from .client_memory import ClientMemory
from .flower_arrays import OPAQUE, array_record, find_record, from_record, records_of, to_record
from .messages import (
    ARRAYS,
    ARRAYS_KEY,
    BUFFER_NAMES,
    BUFFERS,
    CONFIG,
    CONFIG_KEY,
    NOTE,
    NUM_EXAMPLES,
    OWN,
    PAYLOAD,
    SECURE,
    SERVER_ROUND,
    SIGNING_KEY,
    Received,
    Update,
    named_or_only,
)
from .model import Model, Vector

# Trains a model and returns the result; more vectors are passed to the handler by name.
Train = Callable[..., Update]
# What a strategy does on the client: (received, memory, train) -> (update, the memory to keep).
# If the memory is None the client's whole state stays unchanged, the handler's included.
ClientEnd = Callable[[Received, ClientMemory, Train], tuple[Update, ClientMemory | None]]


class NoUpdateError(Exception):
    """The handler's reply has no arrays, or is an error; it is sent to the server unchanged."""


class Handler:
    """A ClientApp's handler, called with a model in place of a message.

    Args:
        message: The server's message.
        context: The client's.
        call_next: The handler.
        received: What the message holds.

    Attributes:
        key: The name of the record of arrays.
        reply: The handler's reply to its last call; None before.
    """

    def __init__(
        self, message: Message, context: Context, call_next: ClientAppCallable, received: Received
    ) -> None:
        self._message, self._context, self._call_next = message, context, call_next
        self._received = received
        self.key = str(received.entries.get(ARRAYS_KEY, ARRAYS))
        self.reply: Message | None = None

    def __call__(self, model: Model, vectors: Mapping[str, Vector] | None = None) -> Update:
        """Return what training made of the model; an empty update if clients test it.

        Raises:
            NoUpdateError: The handler has returned no arrays.
        """
        # A separate record: other clients in this process share the model.
        content = RecordDict({self.key: array_record(model.record), **self._received.others})
        for own, vector in (vectors or {}).items():
            content[own] = to_record(model.layout.unflatten(vector))
        self._message.content = content
        self.reply = reply = self._call_next(self._message, self._context)
        if reply.has_content() and not self._received.trains:
            reply.content.pop(self.key, None)  # the server does not read the model
            return Update()
        if not reply.has_content() or not records_of(reply.content, ArrayRecord):
            raise NoUpdateError
        return _take_update(reply.content, self.key, model)


def refuse_open(message: Message, context: Context) -> None:
    """Raise a ValueError if this node signs secure sums, and the message is of another method."""
    own = find_record(message.content, OWN, ConfigRecord) or ConfigRecord()
    asks = message.metadata.message_type.startswith(("train", "evaluate"))
    if SIGNING_KEY in context.node_config and asks and SECURE not in own:
        raise ValueError(f"this node has a {SIGNING_KEY}: it takes part in signed secure sums only")


def around_handler(
    end: ClientEnd, message: Message, context: Context, call_next: ClientAppCallable
) -> Message:
    """Handle a message by a strategy's client function. The client's state is changed last.

    Raises:
        ValueError: The message cannot be read, training returned arrays of other names or shapes
            than the model's, or the strategy's client function raised.
    """
    received, memory = _received(message, context), ClientMemory.read(context.state)
    handler = Handler(message, context, call_next, received)
    before = context.state.copy()  # the handler keeps its own there, such as momentum
    try:
        update, kept = end(received, memory, handler)
    except NoUpdateError:
        assert handler.reply is not None
        return handler.reply
    if kept is None:
        context.state = before
    reply = handler.reply
    if reply is None or kept is None or update.alone:
        reply = Message(RecordDict(), reply_to=message)
    _write_update(reply.content, handler.key, update)
    if kept is not None:
        kept.write(context.state)
    return reply


def _received(message: Message, context: Context) -> Received:
    others = RecordDict(dict(message.content))
    own = others.pop(OWN, None)
    entries = dict(own) if isinstance(own, ConfigRecord) else {}
    name, key = str(entries.get(CONFIG_KEY, CONFIG)), str(entries.get(ARRAYS_KEY, ARRAYS))
    shared = find_record(others, name, ConfigRecord)
    if shared is None or not isinstance(number := shared.get(SERVER_ROUND), int):
        raise ValueError(f"no integer {SERVER_ROUND!r} in the ConfigRecord {name!r}")
    others[name] = settings = shared.copy()  # other clients in this process have the same record
    found = {
        record: arrays
        for record, arrays in records_of(message.content, ArrayRecord).items()
        if record == key or record.startswith(f"{OWN}.")
    }
    for record in found:
        del others[record]
    complete, beside = found.pop(key, None), found.pop(BUFFERS, ArrayRecord())
    listed = entries.get(BUFFER_NAMES)
    buffers = tuple(map(str, listed)) if isinstance(listed, list) else ()
    return Received(
        number=number,
        trains=message.metadata.message_type.startswith("train"),
        settings=settings,
        entries=entries,
        model=None if complete is None else Model.read(complete, buffers),
        buffers=from_record(beside),
        buffer_names=buffers,
        vectors={
            record.removeprefix(f"{OWN}."): Model.read(arrays).vector
            for record, arrays in found.items()
        },
        others=others,
        seed=settings.get("seed", 0),
        client=context.node_config.get("partition-id", context.node_id),
        node_config=context.node_config,
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
    metrics = next(iter(records_of(content, MetricRecord).values()), MetricRecord())
    return Update(trained, buffers, float(str(metrics.get(NUM_EXAMPLES, 0))))


def _write_update(content: RecordDict, key: str, update: Update) -> None:
    if update.note:
        content[NOTE] = ConfigRecord({"array": update.note})
    if update.model is not None:
        content[key] = update.model.record
    if (data := update.payload) is not None:
        content[OWN] = ArrayRecord({PAYLOAD: Array("uint8", (len(data),), OPAQUE, data)})
    if update.model is None and update.buffers:
        content[BUFFERS] = to_record(update.buffers)
    for name, vector in update.vectors.items():
        assert update.model is not None
        arrays = to_record(update.model.layout.unflatten(vector))
        content[f"{OWN}.{name}"] = array_record(
            {
                own: Array(array.dtype, array.shape, OPAQUE, array.data)
                for own, array in arrays.items()
            }
        )
