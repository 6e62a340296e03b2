"""Flower's `Array` and NumPy's arrays, without the cost of NumPy's file format.

An `Array` made from a NumPy array holds a .npy file, whose header NumPy writes and parses as Python
text: tens of microseconds for each of a model's arrays in every message, many times what a small
one's values take. All messages of a run repeat the same few headers, so they are kept here. The
bytes are those that ``Array(array)`` makes.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO

import numpy as np
from flwr.app import Array, ArrayRecord
from numpy.lib import format as npy
from numpy.typing import NDArray

from strategies.records import array_record

NUMPY = "numpy.ndarray"
# Format versions by their two bytes: (where the header's length is stored, in how many bytes,
# what parses the header).
_VERSIONS = {
    b"\x01\x00": (2, npy.read_array_header_1_0),
    b"\x02\x00": (4, npy.read_array_header_2_0),
}
_MAGIC = len(npy.MAGIC_PREFIX)
# NumPy's own bound on the headers that it parses.
LARGEST_HEADER = 10_000


@dataclass(frozen=True)
class Header:
    """What a .npy header says: the values' shape, order and dtype, and where they begin."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[np.generic]
    end: int


def to_array(array: NDArray[np.generic]) -> Array:
    """Return what ``Array(array)`` returns, always in C order."""
    data = _written_header(array.dtype.str, array.shape) + array.tobytes()
    return Array(array.dtype.name, array.shape, NUMPY, data)


def from_array(array: Array) -> NDArray[np.generic]:
    """Return the values, read-only, in the memory that the `Array` holds them in.

    Raises:
        ValueError: As for `read_header` and `read_values`.
    """
    return read_values(array, read_header(array))


def to_record(arrays: Mapping[str, NDArray[np.generic]]) -> ArrayRecord:
    """Return the named arrays as a record."""
    return array_record({name: to_array(array) for name, array in arrays.items()})


def from_record(record: ArrayRecord) -> dict[str, NDArray[np.generic]]:
    """Return the record's values, read-only, in its order.

    Raises:
        ValueError: As for `from_array`.
    """
    return {name: from_array(array) for name, array in record.items()}


def read_header(array: Array) -> Header:
    """Return what the header of the array's bytes says; nothing else is looked at.

    Raises:
        ValueError: The array is not serialised by NumPy, or its header cannot be read.
    """
    if array.stype != NUMPY:
        raise ValueError(f"is serialised as {array.stype!r}, not {NUMPY!r}")
    data = array.data
    length_bytes, _ = _VERSIONS.get(data[_MAGIC : _MAGIC + 2], (0, None))
    start = _MAGIC + 2 + length_bytes
    end = start + int.from_bytes(data[start - length_bytes : start], "little")
    if not length_bytes or end - start > LARGEST_HEADER:
        raise ValueError("has an unreadable header")
    return _parsed(data[:end])


def read_values(array: Array, header: Header) -> NDArray[np.generic]:
    """Return the values behind the header, read-only.

    Raises:
        ValueError: The dtype holds no numbers, or the bytes are more or fewer than the header says.
    """
    if header.dtype.hasobject or header.dtype.itemsize == 0:
        raise ValueError(f"is of dtype {header.dtype}, which holds no numbers")
    body = memoryview(array.data)[header.end :]
    if len(body) != header.dtype.itemsize * math.prod(header.shape):
        expected = f"{header.dtype}{list(header.shape)}"
        raise ValueError(f"holds {len(body)} bytes, not those of {expected}")
    values: NDArray[np.generic] = np.frombuffer(body, header.dtype)
    return values.reshape(header.shape, order="F" if header.fortran else "C")


@lru_cache(maxsize=256)
def _written_header(dtype: str, shape: tuple[int, ...]) -> bytes:
    file = BytesIO()
    npy.write_array_header_1_0(file, {"descr": dtype, "fortran_order": False, "shape": shape})
    return file.getvalue()


@lru_cache(maxsize=256)
def _parsed(data: bytes) -> Header:
    stream = BytesIO(data)
    try:
        version = npy.read_magic(stream)
        _, parse = _VERSIONS[bytes(version)]
        shape, fortran, dtype = parse(stream)
    except Exception as error:  # whatever a malformed header makes NumPy raise
        raise ValueError("has an unreadable header") from error
    return Header(shape, fortran, dtype, len(data))
