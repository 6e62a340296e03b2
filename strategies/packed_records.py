"""The one record of a compressed training message, and the one of its reply (docs/protocol.md).

Flower sends every record, and every array of one, as an object of its own, with a request, an id
and a signature. A `ConfigRecord` is a single object whatever entries it has, bytes among them, so
all that a compressed strategy sends is the entries of one.
"""

from flwr.app import ConfigRecord, MetricRecord, RecordDict

from strategies.compression.sync_protocol import Head
from strategies.flower_arrays import find_record, get_record
from strategies.reply_validation import CONFIG, METRICS

# Entries of the message's record "config", beside the settings.
HEAD, UPDATES = "head", "updates"
# The reply's record, and its entry beside the metrics.
UPDATE_RECORD, PAYLOAD = "update", "payload"
# The record of the arrays that are not compressed, either way; the message's setting of that name
# lists them. Only models that have some have it.
BUFFERS = "buffers"


def pack_message(settings: ConfigRecord, head: Head, updates: bytes | None) -> ConfigRecord:
    """Return the record "config" of a training message.

    Args:
        settings: What the client's work is; left as it is.
        head: The message's head.
        updates: The updates that the client missed; None where it is sent the full model.

    Raises:
        ValueError: A setting has the name of one of the other two.
    """
    for name in (HEAD, UPDATES):
        if name in settings:
            raise ValueError(f"a training config must not have a key {name!r}")
    packed = settings.copy()
    packed[HEAD] = head.encode()
    if updates is not None:
        packed[UPDATES] = updates
    return packed


def unpack_message(content: RecordDict) -> tuple[ConfigRecord, Head, bytes | None]:
    """Return a training message's (settings, head, updates or None).

    Raises:
        KeyError: There is no `ConfigRecord` "config".
        ValueError: An entry is missing or not bytes, or the head cannot be read.
    """
    settings = get_record(content, CONFIG, ConfigRecord).copy()
    head = Head.decode(_take_bytes(settings, CONFIG, HEAD))
    updates = _take_bytes(settings, CONFIG, UPDATES) if UPDATES in settings else None
    return settings, head, updates


def pack_reply(content: RecordDict, payload: bytes) -> None:
    """Put the payload and the record "metrics" of a reply's content into one record.

    Raises:
        ValueError: A metric is called "payload".
    """
    metrics = find_record(content, METRICS, MetricRecord)
    packed = ConfigRecord({} if metrics is None else dict(metrics))
    if PAYLOAD in packed:
        raise ValueError(f"a metric must not be called {PAYLOAD!r}")
    packed[PAYLOAD] = payload
    content.pop(METRICS, None)
    content[UPDATE_RECORD] = packed


def unpack_reply(content: RecordDict) -> tuple[bytes, ConfigRecord]:
    """Return a reply's (payload, metrics).

    Raises:
        ValueError: There is no such record, or it has no payload.
    """
    metrics = find_record(content, UPDATE_RECORD, ConfigRecord)
    if metrics is None:
        raise ValueError(f"no ConfigRecord {UPDATE_RECORD!r}")
    metrics = metrics.copy()
    return _take_bytes(metrics, UPDATE_RECORD, PAYLOAD), metrics


def _take_bytes(record: ConfigRecord, record_name: str, name: str) -> bytes:
    """Remove and return an entry of bytes."""
    data = record.pop(name, None)
    if not isinstance(data, bytes):
        raise ValueError(f"no bytes {name!r} in the ConfigRecord {record_name!r}")
    return data
