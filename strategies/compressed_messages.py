"""The messages of the compressed strategies, both ways: one end writes what the other reads.

Flower sends every record, and every array of one, as an object of its own, with a request, an id
and a signature. A `ConfigRecord` is a single object whatever entries it has, bytes among them, so
all that a compressed strategy sends is the entries of one (docs/protocol.md).
"""

from dataclasses import dataclass
from typing import cast

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from strategies.aggregation import Arrays
from strategies.codec import Codec
from strategies.compression.decoded_update import Update
from strategies.compression.error_feedback import OutOfRangeError, check_range
from strategies.compression.sync_protocol import (
    Head,
    ModelUpdate,
    Payload,
    ReplyStatus,
    decode_updates,
)
from strategies.compression.vector_layout import Layout
from strategies.flower_arrays import find_record, get_record
from strategies.reply_validation import (
    ARRAYS,
    CONFIG,
    METRICS,
    DivergedReplyError,
    ReplyError,
    ResyncError,
)

# Entries of the record "config", beside the settings.
HEAD, UPDATES = "head", "updates"
# The record of the arrays that are not compressed, either way; the message's setting of that name
# lists them. Only models that have some have it.
BUFFERS = "buffers"
# The setting that names the round whose update was refused for its norm.
REFUSED = "refused"
# The reply's record, and its entry beside the metrics.
UPDATE_RECORD, PAYLOAD = "update", "payload"


@dataclass(frozen=True)
class TrainMessage:
    """What the server says to a client of a compressed strategy.

    Attributes:
        config: The settings of the local work.
        server_round: The round's number.
        head: The version to train from, and the last round accepted of this client.
        refused: The round whose update of this client was refused for its norm, 0 for none.
        updates: The updates that the client missed; none where the full model is sent.
        model: The full model, if it is sent.
        buffers: The names of the arrays that are not compressed.
        sent_buffers: These arrays, where they are sent beside updates.
    """

    config: ConfigRecord
    server_round: int
    head: Head
    refused: int
    updates: list[ModelUpdate]
    model: ArrayRecord | None
    buffers: list[str]
    sent_buffers: ArrayRecord | None


def pack_settings(settings: ConfigRecord, head: Head, updates: bytes | None) -> ConfigRecord:
    """Return the record "config": the settings, the head, and the updates if there are some."""
    packed = settings.copy()
    packed[HEAD] = head.encode()
    if updates is not None:
        packed[UPDATES] = updates
    return packed


def read_train_message(message: Message, codec: Codec, last_round: int) -> TrainMessage:
    """Return what a training message says.

    Args:
        message: The server's message.
        codec: The client's own.
        last_round: The round of the last message that the client answered with an update.

    Raises:
        KeyError: It has no settings.
        ValueError: It cannot be read, is not of a later round, or was made with another codec.
    """
    config = get_record(message.content, CONFIG, ConfigRecord).copy()
    head = Head.decode(take_bytes(config, CONFIG, HEAD))
    encoded = take_bytes(config, CONFIG, UPDATES) if UPDATES in config else None
    refused = cast(int, config.pop(REFUSED, 0))
    server_round = cast(int, config["server-round"])
    if server_round <= last_round:
        raise ValueError(f"a message of round {server_round}, after one of round {last_round}")
    if head.codec != codec.digest:
        raise ValueError(
            f"the server compresses otherwise than this client, whose codec is {codec}: give both "
            "the same strategy and strategy-args"
        )
    model = find_record(message.content, ARRAYS, ArrayRecord)
    if model is None and encoded is None:
        raise ValueError("a message with neither updates nor the model")
    updates = decode_updates(encoded) if encoded is not None and model is None else []
    names = config.get(BUFFERS, [])
    assert isinstance(names, list)
    buffers = find_record(message.content, BUFFERS, ArrayRecord)
    names = [*map(str, names)]
    return TrainMessage(config, server_round, head, refused, updates, model, names, buffers)


def take_bytes(record: ConfigRecord, record_name: str, name: str) -> bytes:
    """Remove and return an entry of bytes.

    Raises:
        ValueError: There is none.
    """
    data = record.pop(name, None)
    if not isinstance(data, bytes):
        raise ValueError(f"no bytes {name!r} in the ConfigRecord {record_name!r}")
    return data


@dataclass(frozen=True)
class CompressedReply:
    """What a valid reply holds.

    Attributes:
        update: The decoded update of the trained arrays.
        buffers: The arrays that are sent as they are (`RunSettings.buffers`).
        anew: Whether the client's memory was empty, so that an estimate of it begins at zero.
    """

    update: Update
    buffers: Arrays
    anew: bool = False


def pack_reply(content: RecordDict, payload: Payload) -> None:
    """Put the payload and the record "metrics" of a reply's content into one record."""
    metrics = find_record(content, METRICS, MetricRecord)
    content.pop(METRICS, None)
    content[UPDATE_RECORD] = ConfigRecord({**(metrics or {}), PAYLOAD: payload.encode()})


def read_payload(reply: Message, codec: Codec, server_round: int) -> tuple[Payload, ConfigRecord]:
    """Return the payload and the metrics of a reply to this round, made with this codec.

    Raises:
        ReplyError: It is not such a reply.
    """
    try:
        record = find_record(reply.content, UPDATE_RECORD, ConfigRecord)
        if record is None:
            raise ValueError(f"no ConfigRecord {UPDATE_RECORD!r}")
        metrics = record.copy()
        payload = Payload.decode(take_bytes(metrics, UPDATE_RECORD, PAYLOAD))
    except ValueError as error:
        raise ReplyError(f"undecodable update: {error}") from error
    if payload.codec != codec.digest:
        raise ReplyError(
            "the client compresses otherwise than the server; give both the same strategy-args "
            f"(here {codec})"
        )
    if payload.server_round != server_round:
        raise ReplyError(f"the reply is to round {payload.server_round}, not {server_round}")
    return payload, metrics


def read_update(payload: Payload, codec: Codec, layout: Layout) -> Update:
    """Return the decoded update, all of whose values are in range.

    Raises:
        ResyncError: The client lost its state.
        DivergedReplyError: Its training diverged.
        ReplyError: The bytes do not encode an update of this layout, or the update begins an
            estimate that the error feedback has none of.
    """
    if payload.status == ReplyStatus.NEEDS_MODEL:
        raise ResyncError("the client lost its state; full model next round")
    if payload.status == ReplyStatus.DIVERGED:
        raise DivergedReplyError("the client's training diverged: NaN, infinity or beyond 2^64")
    if payload.status == ReplyStatus.FIRST_UPDATE and not codec.feedback.keeps_estimates:
        raise ReplyError("the update begins an estimate, but this error feedback keeps none")
    try:
        update = codec.uplink_in(payload.server_round).decode(payload.update, layout)
        update.check(layout.size)
        check_range(update)
    except OutOfRangeError as error:
        raise DivergedReplyError(str(error)) from error
    except Exception as error:  # a compressor of another package may raise or return anything
        raise ReplyError(f"undecodable update: {error}") from error
    return update
