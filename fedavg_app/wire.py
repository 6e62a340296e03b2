"""How many bytes a message carries."""

from typing import Any

from flwr.app import Array, Message


def count_bytes(message: Message) -> int:
    """Return the bytes of the message's records: their values and their names.

    Arrays count as serialised (with NumPy's 128-byte header), numbers 8 bytes, truth values 1, text
    and bytes their length. What the transport adds around a record is not counted; an error reply
    carries nothing. (Flower's own `count_bytes` raises for an empty text or list, which a client
    may send.)
    """
    if not message.has_content():
        return 0
    total = 0
    for record in message.content.values():
        total += sum(len(name.encode()) + _size(value) for name, value in record.items())
    return total


def _size(value: Any) -> int:
    if isinstance(value, Array):
        return len(value.data)
    if isinstance(value, list):
        return sum(_size(item) for item in value)
    if isinstance(value, bool):
        return 1
    if isinstance(value, str):
        return len(value.encode())
    return len(value) if isinstance(value, bytes) else 8
