"""The client's end of messages: what came is read, the handler is called, its reply is written."""

from collections.abc import Mapping

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp.typing import ClientAppCallable

from strategies.flower_arrays import array_record, from_record, get_record, to_record
from strategies.messages import (
    ARRAYS_KEY,
    BUFFERS,
    PAYLOAD,
    SERVER_ROUND,
    UPDATE,
    Received,
    Update,
    model_key,
)
from strategies.model import Model, Vector
from strategies.reply_validation import ARRAYS, NUM_EXAMPLES


def read_received(message: Message, context: Context) -> Received:
    """Return what a training message says.

    Raises:
        ValueError: It has no settings of a round, or its arrays cannot be read.
    """
    settings = _settings(message.content)[1].copy()
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
    )


def train_from(
    message: Message,
    context: Context,
    call_next: ClientAppCallable,
    received: Received,
    model: Model,
    vectors: Mapping[str, Vector],
) -> tuple[Message, Update]:
    """Return the handler's reply to a message with this model, and the update that was in it.

    The update of an evaluation is empty.

    Args:
        message: The server's message; its content is replaced.
        context: The client's context.
        call_next: The handler.
        received: What the message said.
        model: What to train from.
        vectors: Further vectors for the handler, by the name of their record.

    Raises:
        NoUpdateError: The reply has no arrays.
        ValueError: Training returned arrays of other names or shapes than the model's.
    """
    name, _ = _settings(message.content)
    key = str(received.settings.get(ARRAYS_KEY, ARRAYS))
    # Records of its own: other clients in this process share the model.
    content = RecordDict({key: array_record(model.record), name: received.settings})
    for own, vector in vectors.items():
        content[own] = to_record(model.layout.unflatten(vector))
    message.content = content
    reply = call_next(message, context)
    if reply.has_content() and not received.trains:
        return reply, Update()
    if not reply.has_content() or not reply.content.array_records:
        raise NoUpdateError(reply)
    key = model_key(reply.content)
    record = get_record(reply.content, key, ArrayRecord)
    del reply.content[key]  # `write_update` puts it back if it is sent
    arrays = from_record(record)
    layout = model.layout
    shapes = {own: array.shape for own, array in arrays.items() if own in layout.names}
    expected = dict(zip(layout.names, layout.shapes, strict=True))
    if set(arrays) != set(model.order) or shapes != expected:
        raise ValueError("training returned arrays of other names or shapes than the model's")
    # A mod may have made them float64.
    buffers = {own: arrays[own] for own in model.buffers}
    trained = Model(layout, layout.flatten(arrays), buffers, model.order)
    trained.record = record
    metrics = next(iter(reply.content.metric_records.values()), MetricRecord())
    examples = metrics.get(NUM_EXAMPLES, 0)
    return reply, Update(trained, trained.buffers, float(str(examples)))


def write_update(content: RecordDict, update: Update) -> None:
    """Put an update into the content of a reply."""
    if update.model is not None:
        content[ARRAYS] = update.model.record
    elif update.buffers:
        content[BUFFERS] = to_record(update.buffers)
    if update.payload is not None:
        content[UPDATE] = ConfigRecord({PAYLOAD: update.payload})
    for name, vector in update.vectors.items():
        assert update.model is not None
        content[name] = to_record(update.model.layout.unflatten(vector))


class NoUpdateError(Exception):
    """The handler's reply has no arrays, or is an error; it goes to the server as it is."""

    def __init__(self, reply: Message) -> None:
        super().__init__("training returned no arrays")
        self.reply = reply


def _settings(content: RecordDict) -> tuple[str, ConfigRecord]:
    """Return the name and the record of a training message's settings."""
    for name, record in content.config_records.items():
        if SERVER_ROUND in record:
            return name, record
    raise ValueError(f"no ConfigRecord with {SERVER_ROUND!r}")
