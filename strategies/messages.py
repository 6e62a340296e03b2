"""The boundary between strategies and Flower's messages: everything is read and written here.

Inside are values: what the server sends a client is a `Broadcast` at one end and `Received` at the
other; what a client returns is an `Update` at one end and a `Reply` at the other. docs/protocol.md
has the records that they become.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp.typing import ClientAppCallable
from numpy.typing import NDArray

from strategies.aggregation import finite_or_sent
from strategies.flower_arrays import array_record, find_record, from_array, from_record, to_record
from strategies.model import Arrays, Model, Vector, name_at
from strategies.random_streams import random_stream
from strategies.reply_validation import (
    ARRAYS,
    CONFIG,
    METRICS,
    NUM_EXAMPLES,
    ClientReport,
    DivergedReplyError,
    ReplyBounds,
    ReplyError,
    report_of,
    shorten,
)

# The record of arrays that are sent as they are where the others are compressed, and the setting
# that lists their names.
BUFFERS = "buffers"
# The record of a reply's payload, and its entry.
UPDATE, PAYLOAD = "update", "payload"
SERVER_ROUND = "server-round"
# The setting that names the record of arrays, where that is not "arrays".
ARRAYS_KEY = "arrays-key"
NOT_FINITE = "array {!r} has NaN or infinite values"

Record = TypeVar("Record", ArrayRecord, MetricRecord)
Entry = int | bytes | str


@dataclass(frozen=True)
class Broadcast:
    """What the server sends one client, beside the settings that all clients get.

    Attributes:
        entries: Further entries of the message's settings, for the strategy's end on the client.
        full: Whether the model is sent, or only its buffers.
        vectors: Further vectors of the model's layout, by the name of their record.
    """

    entries: Mapping[str, Entry] = field(default_factory=dict)
    full: bool = True
    vectors: Mapping[str, Vector] = field(default_factory=dict)


@dataclass(frozen=True)
class Received:
    """What a client has received.

    Attributes:
        number: The number of the round, from 1.
        trains: Whether the client is to train; else to evaluate.
        settings: The settings of the local work, and the server's `Broadcast.entries`.
        model: The model; None where only its buffers were sent.
        buffers: The buffers, by name, if they were sent without the model.
        buffer_names: The names of the model's buffers.
        vectors: `Broadcast.vectors`.
        seed: The run's seed.
        client: The client's partition; the id of its node where it has none.
    """

    number: int
    trains: bool
    settings: ConfigRecord
    model: Model | None
    buffers: Arrays
    buffer_names: tuple[str, ...]
    vectors: Mapping[str, Vector]
    seed: int
    client: int

    def take(self, name: str) -> bytes:
        """Remove and return an entry of bytes; ValueError if there is none."""
        data = self.settings.pop(name, None)
        if not isinstance(data, bytes):
            raise ValueError(f"no bytes {name!r} in the ConfigRecord {CONFIG!r}")
        return data

    def random_stream(self, purpose: str) -> np.random.Generator:
        """Return the generator of what this client draws for a purpose in this round."""
        return random_stream(self.seed, purpose, self.client, self.number)


@dataclass(frozen=True)
class Update:
    """What a client returns, as a strategy's end on the client makes it.

    Attributes:
        model: The model that is sent, at first the one that training left; None if it is not.
        buffers: The buffers, which are sent in any case.
        num_examples: n_k, where the client's work reported it.
        payload: Bytes that are sent in place of the model, or beside it.
        vectors: Further vectors of the model's layout, by the name of their record.
    """

    model: Model | None = None
    buffers: Arrays = field(default_factory=dict)
    num_examples: float = 0.0
    payload: bytes | None = None
    vectors: Mapping[str, Vector] = field(default_factory=dict)


class Reply:
    """A client's reply as the server reads it: every part is checked when it is asked for.

    Args:
        message: The reply, which has no error.
        model: The global model of the round.
        bounds: What its numbers must keep to.
        weighted_by: The name of the metric that is n_k.
    """

    def __init__(
        self, message: Message, model: Model, bounds: ReplyBounds, weighted_by: str = NUM_EXAMPLES
    ) -> None:
        self.message, self.node = message, message.metadata.src_node_id
        self._model, self._bounds, self._weighted_by = model, bounds, weighted_by

    @cached_property
    def report(self) -> ClientReport:
        """The client's metrics; ReplyError as for `read_report`."""
        return read_report(self.message, self._bounds, self._weighted_by)

    @property
    def payload(self) -> bytes:
        """The payload; ReplyError where there is none."""
        record = find_record(self.message.content, UPDATE, ConfigRecord)
        if record is None:
            fix = "does the ClientApp have the strategy's mod, such as compression_mod?"
            raise ReplyError(f"no ConfigRecord {UPDATE!r}: {fix}")
        data = record.get(PAYLOAD)
        if not isinstance(data, bytes):
            raise ReplyError(f"no bytes {PAYLOAD!r} in the ConfigRecord {UPDATE!r}")
        return data

    @property
    def vector(self) -> Vector:
        """The client's trained arrays as one vector of the model's layout.

        Raises:
            ReplyError: There are none, or they have other names, shapes or dtypes than the model's.
            DivergedReplyError: One has NaN or infinite values that were not sent.
        """
        vector = self._read_vector(self._arrays)
        if not np.isfinite(vector).all():
            sent = self._model.vector
            same = (vector == sent) | (np.isnan(vector) & np.isnan(sent))
            self._check_finite(np.isfinite(vector) | same)
        return vector

    def vector_of(self, name: str) -> Vector:
        """Return a further vector of the model's layout; ReplyError as for `vector`."""
        record = find_record(self.message.content, name, ArrayRecord)
        if record is None:
            raise ReplyError(f"no ArrayRecord {name!r}")
        if set(record) != set(self._model.layout.names):
            raise ReplyError(f"the names in {name!r} are not those of the model's trained arrays")
        vector = self._read_vector(record)
        self._check_finite(np.isfinite(vector))
        return vector

    @cached_property
    def buffers(self) -> Arrays:
        """The client's buffers; ReplyError as for `vector`."""
        expected = self._model.buffers
        if not expected:
            return {}
        record = find_record(self.message.content, BUFFERS, ArrayRecord)
        if record is None:
            record = self._arrays
        elif set(record) != set(expected):
            raise ReplyError(f"the names in {BUFFERS!r} are not those of the model's buffers")
        found = {}
        for name, sent in expected.items():
            found[name] = _read(name, record[name], sent.dtype, sent.shape)
            if not finite_or_sent(found[name], sent):
                raise DivergedReplyError(NOT_FINITE.format(name))
        return found

    @cached_property
    def _arrays(self) -> ArrayRecord:
        """The record of all arrays."""
        record, names = _arrays(self.message.content), self._model.order
        if set(record) != set(names):
            different = shorten(", ".join(sorted(set(record) ^ set(names))))
            raise ReplyError(f"array names differ from the model's: {different}")
        return record

    def _read_vector(self, record: ArrayRecord) -> Vector:
        layout, exact = self._model.layout, self._bounds.exact
        likes = zip(layout.names, layout.shapes, layout.all_dtypes, strict=True)
        arrays = {name: _read(name, record[name], one, shape, exact) for name, shape, one in likes}
        return layout.flatten(arrays)

    def _check_finite(self, finite: NDArray[np.bool_]) -> None:
        if not finite.all():
            name = name_at(self._model.layout, int(np.argmin(finite)))
            raise DivergedReplyError(NOT_FINITE.format(name))


def read_report(message: Message, bounds: ReplyBounds, weighted_by: str) -> ClientReport:
    """Return the metrics of a reply; ReplyError as for `report_of`, or it has no record of them."""
    record = find_record(message.content, METRICS, MetricRecord)
    if record is None:
        record = _only(message.content.metric_records, METRICS)
    return report_of(message.metadata.src_node_id, record, bounds, weighted_by)


class ContentWriter:
    """Writes the contents of a round's training messages.

    Messages of the same content share their records.

    Args:
        model: The global model.
        settings: What all clients are told.
        keys: The names of the record of arrays and of that of settings.
    """

    def __init__(self, model: Model, settings: ConfigRecord, keys: tuple[str, str]) -> None:
        self._model, self._settings, self._keys = model, settings, keys
        self._written: dict[Hashable, RecordDict] = {}
        self._vectors: dict[int, tuple[Vector, ArrayRecord]] = {}
        buffers = {name: model.record[name] for name in model.buffers}
        self._buffers = array_record(buffers) if buffers else None

    def content(self, broadcast: Broadcast) -> RecordDict:
        """Return the content of a message; a client mod may replace the records in it."""
        vectors = tuple((name, id(one)) for name, one in broadcast.vectors.items())
        key = (*broadcast.entries.items(), broadcast.full, vectors)
        if key not in self._written:
            self._written[key] = self._write(broadcast)
        return RecordDict(dict(self._written[key]))

    def _write(self, broadcast: Broadcast) -> RecordDict:
        model, settings, (arrays, config) = self._model, self._settings, self._keys
        if broadcast.entries:
            settings = settings.copy()
            settings.update(broadcast.entries)
        content = RecordDict({arrays: model.record} if broadcast.full else {})
        content[config] = settings
        if self._buffers is not None and not broadcast.full:
            content[BUFFERS] = self._buffers
        for name, vector in broadcast.vectors.items():
            if id(vector) not in self._vectors:
                self._vectors[id(vector)] = vector, to_record(model.layout.unflatten(vector))
            content[name] = self._vectors[id(vector)][1]
        return content


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
    """Return the handler's reply to a message with this model, and the update in it.

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
    record = _arrays(reply.content)
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
    """Put an update into the content of a reply, in place of the arrays that training left."""
    key = ARRAYS if ARRAYS in content else next(iter(content.array_records), ARRAYS)
    if update.model is not None:
        content[key] = update.model.record
    else:
        content.pop(key, None)
        if update.buffers:
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


def _arrays(content: RecordDict) -> ArrayRecord:
    """Return a reply's record of the model; ReplyError if there is none."""
    record = find_record(content, ARRAYS, ArrayRecord)
    return _only(content.array_records, ARRAYS) if record is None else record


def _only(records: Mapping[str, Record], name: str) -> Record:
    """Return the only record of a kind, whatever its name; ReplyError without one or with more."""
    if len(records) != 1:
        kind = "ArrayRecord" if name == ARRAYS else "MetricRecord"
        raise ReplyError(f"no {kind} {name!r}")
    return next(iter(records.values()))


def _read(
    name: str, array: Array, dtype: np.dtype[Any], shape: tuple[int, ...], exact: bool = True
) -> NDArray[np.generic]:
    """Return an array of a reply, which has this dtype and shape.

    Unless ``exact``, it may have any dtype of real floating-point numbers.
    """
    try:
        if not exact:
            values = from_array(array)
            if values.shape == shape and values.dtype.kind == "f":
                return values
        return from_array(array, (dtype, shape))
    except ValueError as error:
        raise ReplyError(f"array {name!r} {error}") from error
