"""Arrays of raw bytes: Flower's `Array` without the 128 bytes of a NumPy header."""

from flwr.app import Array, ArrayRecord, RecordDict

from strategies.compression.update import CodecError
from strategies.records import find

RAW = "fedavg_app.bytes"


def raw_array(data: bytes) -> Array:
    """Return the bytes as an `Array` of uint8 whose serialisation is theirs alone."""
    return Array("uint8", (len(data),), RAW, data)


def raw_bytes(content: RecordDict, record: str, name: str) -> bytes:
    """Return the bytes of an array that `raw_array` made.

    Raises:
        CodecError: There is no such array, or it is serialised in another way.
    """
    arrays = find(content, record, ArrayRecord)
    if arrays is None or name not in arrays or arrays[name].stype != RAW:
        raise CodecError(f"no array {name!r} of bytes in an ArrayRecord {record!r}")
    return arrays[name].data
