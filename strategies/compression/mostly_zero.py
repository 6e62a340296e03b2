"""A code of small whole numbers of which many may be zero.

Bytes (little endian): b, 1 byte; z, 4 bytes; z of the numbers, ``width`` bits each (`bit_packing`).
Where b is 255 these are all of them; else those that are not zero, and after them comes the Golomb
code of their positions (`golomb`). A sender takes what is likely to be shorter.
"""

import struct

import numpy as np
from numpy.typing import NDArray

from strategies.compression import golomb
from strategies.compression.bit_packing import pack, packed_size, unpack
from strategies.compression.decoded_update import DecodeError

HEAD = struct.Struct("<BI")
ALL_ENTRIES = 255  # in the place of b

Numbers = NDArray[np.uint8]


def expected_bits(share: float, width: int) -> float:
    """Return the bits a number where that share of them is not zero."""
    sparse = share * (golomb.position_bits(share) + width) if share else 0.0
    return min(sparse, float(width))


def encode(numbers: Numbers, zero: int, width: int) -> bytes:
    """Return the code of numbers below 2^width, uint8 (n,), of which ``zero`` is frequent."""
    other = numbers != zero
    share = np.count_nonzero(other) / max(len(numbers), 1)
    if expected_bits(share, width) == width:
        return HEAD.pack(ALL_ENTRIES, len(numbers)) + pack(numbers, width)
    positions, b = np.flatnonzero(other), golomb.parameter(share)
    sent = pack(numbers[positions], width)
    return HEAD.pack(b, len(positions)) + sent + golomb.encode(positions, b)


def decode(data: bytes, size: int, zero: int, width: int) -> Numbers:
    """Return the ``size`` numbers that `encode` wrote.

    Raises:
        DecodeError: The bytes are not such a code.
    """
    if len(data) < HEAD.size:
        raise DecodeError(f"{len(data)} bytes, the head alone takes {HEAD.size}")
    b, count = HEAD.unpack_from(data)
    if count > size:
        raise DecodeError(f"z = {count} of {size} entries")
    end = HEAD.size + packed_size(count, width)
    sent = unpack(data[HEAD.size : end], count, width)
    if b == ALL_ENTRIES:
        if count != size or len(data) != end:
            raise DecodeError(f"z = {count} or {len(data)} bytes do not fit {size} entries")
        return sent
    positions, _ = golomb.decode(data[end:], b, count, size)
    numbers = np.full(size, zero, np.uint8)
    numbers[positions] = sent
    return numbers
