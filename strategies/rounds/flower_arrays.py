"""Flower's arrays and records: fast conversion from and to NumPy's arrays, and their bytes.

An `Array` made from a NumPy array holds a .npy file, whose header NumPy writes and parses as Python
text, which takes many times as long as a small array's values. The messages of a run repeat the
same few headers, so they are cached here. The bytes are those of ``Array(array)``.
"""

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from io import BytesIO
from typing import Any, TypeVar

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from numpy.lib import format as npy
from numpy.typing import NDArray

Record = TypeVar("Record", ArrayRecord, ConfigRecord, MetricRecord)

NUMPY = "numpy.ndarray"
# How an array of bytes is serialized that is no array of numbers to anyone but its reader: Flower's
# `Array.numpy` raises, so that a wrapper cannot clip it, or skip it and add noise to nothing.
OPAQUE = "fedavg_strategies.update"
# Where the header begins in version 1.0 of the format, after two bytes with its length.
_START = npy.MAGIC_LEN + 2


def to_array(array: NDArray[np.generic]) -> Array:
    """Return what ``Array(array)`` returns, always in C order."""
    values = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    data = b"".join([_header_bytes(array.dtype.str, array.shape), values.data])  # copied once
    return Array(array.dtype.name, array.shape, NUMPY, data)


def from_array(
    array: Array, expected: tuple[np.dtype[Any], tuple[int, ...]] | None = None
) -> NDArray[np.generic]:
    """Return a read-only view of the values; nothing is allocated for what a header claims.

    Raises:
        ValueError: The array is not serialized by NumPy, its header cannot be parsed, it has not
            the ``expected`` dtype and shape, the dtype is not numeric, or the number of bytes is
            not the header's.
    """
    if array.stype not in (NUMPY, OPAQUE):
        raise ValueError(f"is serialized as {array.stype!r}, not {NUMPY!r}")
    data = array.data
    end = _START + int.from_bytes(data[_START - 2 : _START], "little")
    shape, fortran_order, dtype = _parse_header(data[:end])
    if expected is not None and (dtype, shape) != expected:
        raise ValueError(f"is {dtype}{list(shape)}, expected {expected[0]}{list(expected[1])}")
    if dtype.hasobject or dtype.itemsize == 0:
        raise ValueError(f"is of dtype {dtype}, which is not numeric")
    body = memoryview(data)[end:]
    if len(body) != dtype.itemsize * math.prod(shape):
        raise ValueError(f"holds {len(body)} bytes, not those of {dtype}{list(shape)}")
    values: NDArray[np.generic] = np.frombuffer(body, dtype)
    return values.reshape(shape, order="F" if fortran_order else "C")


def to_record(arrays: Mapping[str, NDArray[np.generic]]) -> ArrayRecord:
    """Return the named arrays as an `ArrayRecord`."""
    return array_record({name: to_array(array) for name, array in arrays.items()})


def from_record(record: ArrayRecord) -> dict[str, NDArray[np.generic]]:
    """Return read-only views of a record's arrays, in its order; ValueError as for `from_array`."""
    return {name: from_array(array) for name, array in record.items()}


def array_record(arrays: Mapping[str, Array]) -> ArrayRecord:
    """Return ``ArrayRecord(arrays)`` at a quarter of its cost."""
    record = ArrayRecord()
    for name, array in arrays.items():
        record[name] = array
    return record


def find_record(content: RecordDict, name: str, kind: type[Record]) -> Record | None:
    """Return the record of that name if it is of that kind, None otherwise."""
    record = content.get(name)
    return record if isinstance(record, kind) else None


def records_of(content: RecordDict, kind: type[Record]) -> dict[str, Record]:
    """Return the records of a kind by name.

    What a `RecordDict`'s own properties, such as ``array_records``, return refers to itself and to
    all records: a model that was read in that way stays in memory until Python looks for cycles.
    """
    return {name: record for name, record in content.items() if isinstance(record, kind)}


def get_record(content: RecordDict, name: str, kind: type[Record]) -> Record:
    """Return the record of that name; KeyError if there is none, or it is of another kind."""
    record = find_record(content, name, kind)
    if record is None:
        raise KeyError(f"no {kind.__name__} {name!r}")
    return record


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


@lru_cache(maxsize=256)
def _header_bytes(dtype: str, shape: tuple[int, ...]) -> bytes:
    file = BytesIO()
    npy.write_array_header_1_0(file, {"descr": dtype, "fortran_order": False, "shape": shape})
    return file.getvalue()


@lru_cache(maxsize=256)
def _parse_header(data: bytes) -> tuple[tuple[int, ...], bool, np.dtype[np.generic]]:
    """Return (shape, whether in Fortran's order, dtype)."""
    stream = BytesIO(data)
    try:
        if npy.read_magic(stream) != (1, 0):
            raise ValueError("another version")
        header: tuple[tuple[int, ...], bool, np.dtype[np.generic]] = npy.read_array_header_1_0(
            stream
        )
    except Exception as error:  # NumPy raises various types for malformed headers
        raise ValueError("has an unreadable header") from error
    return header


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
