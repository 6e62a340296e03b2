"""A client's reply to a compressed strategy: written by the client, read by the server."""

from dataclasses import dataclass

from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict

from strategies.aggregation import Arrays
from strategies.codec import Codec
from strategies.compression.decoded_update import Update
from strategies.compression.error_feedback import OutOfRangeError, check_range
from strategies.compression.sync_protocol import Payload, ReplyStatus
from strategies.compression.vector_layout import Layout
from strategies.flower_arrays import find_record
from strategies.reply_validation import METRICS, DivergedReplyError, ReplyError, ResyncError
from strategies.train_message import take_bytes

# The reply's record, and its entry beside the metrics.
UPDATE_RECORD, PAYLOAD = "update", "payload"


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
        raise ReplyError("the update begins an estimate, which this error feedback has none of")
    try:
        update = codec.uplink_in(payload.server_round).decode(payload.update, layout)
        update.check(layout.size)
        check_range(update)
    except OutOfRangeError as error:
        raise DivergedReplyError(str(error)) from error
    except Exception as error:  # a compressor of another package may raise or return anything
        raise ReplyError(f"undecodable update: {error}") from error
    return update
