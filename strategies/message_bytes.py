"""The bytes of a message, as histories and tables count them."""

from collections.abc import Iterable, Mapping
from typing import Any

from flwr.app import Array, Message


def message_bytes(message: Message) -> int:
    """Return the bytes of the message's records: their values and their names.

    Arrays count as serialized (with NumPy's 128-byte header), numbers 8 bytes, booleans 1, text and
    bytes their length. What the transport adds around a record is not counted; an error reply
    carries nothing. (Flower's own `count_bytes` raises for an empty text or list, which a client
    may send.)
    """
    return records_bytes(message.content.values()) if message.has_content() else 0


def records_bytes(records: Iterable[Mapping[str, Any]]) -> int:
    """Return the bytes of records, counted as in `message_bytes`."""
    return sum(
        len(_utf8(name)) + _value_bytes(value)
        for record in records
        for name, value in record.items()
    )


def _value_bytes(value: Any) -> int:
    if isinstance(value, Array):
        return len(value.data)
    if isinstance(value, list):
        return sum(_value_bytes(item) for item in value)
    if isinstance(value, bool):
        return 1
    if isinstance(value, str):
        return len(_utf8(value))
    return len(value) if isinstance(value, bytes) else 8


def _utf8(text: str) -> bytes:
    """Return the text's bytes; a name from a device may have halves of surrogate pairs."""
    return text.encode(errors="surrogatepass")
