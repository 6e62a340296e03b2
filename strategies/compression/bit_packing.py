"""Small numbers in bytes, ``width`` bits each, the most significant bit first.

Numbers whose width divides 8 are joined two by two until they fill bytes, which is much faster than
bit by bit.
"""

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from .decoded_update import Bits, DecodeError

Number = TypeVar("Number", np.uint8, np.int64)


def to_bits(numbers: NDArray[np.integer[Any]], width: int) -> Bits:
    """Return the lowest ``width`` bits of each number, one number after the other."""
    bits = np.empty((len(numbers), width), np.bool_)
    for column in range(width):
        bits[:, column] = numbers & (1 << (width - 1 - column))
    return bits.reshape(-1)


def from_bits(bits: Bits, width: int, dtype: type[Number]) -> NDArray[Number]:
    """Return the numbers whose lowest ``width`` bits these are, one after the other."""
    columns = bits.reshape(-1, width)
    numbers = np.zeros(len(columns), dtype)
    for column in range(width):
        numbers <<= 1
        numbers |= columns[:, column]
    return numbers


def bits_at(data: NDArray[np.uint8], start: int, count: int) -> Bits:
    """Return ``count`` bits of the bytes, from bit ``start`` on; fewer where the bytes end."""
    first = start // 8
    bits = np.unpackbits(data[first : -(-(start + count) // 8)])[start - 8 * first :]
    return bits[:count].view(np.bool_)


def packed_size(count: int, width: int) -> int:
    """Return the bytes of this many numbers; the last byte is filled with zeros."""
    return -(-count * width // 8)


def pack(numbers: NDArray[np.uint8], width: int) -> bytes:
    """Return numbers below 2^width, uint8 (n,), as bytes; ``width`` is from 1 to 8."""
    if 8 % width:
        return np.packbits(to_bits(numbers, width)).tobytes()
    padded = np.zeros(-(-len(numbers) // 8) * 8, np.uint8)
    padded[: len(numbers)] = numbers
    for bits in (1, 2, 4):
        if bits >= width:
            pairs = padded.view("<u2")  # the first number is the low byte
            padded = (pairs << bits | pairs >> 8).astype(np.uint8)
    return padded.tobytes()[: packed_size(len(numbers), width)]


def unpack(data: bytes | memoryview, count: int, width: int) -> NDArray[np.uint8]:
    """Return the numbers that `pack` wrote, uint8 (count,).

    Raises:
        DecodeError: Another number of bytes, or the padding is not zero. Nothing was allocated.
    """
    if len(data) != packed_size(count, width):
        raise DecodeError(f"{len(data)} bytes, not {packed_size(count, width)} for {count} numbers")
    used = -count * width % 8
    if data and data[-1] & ((1 << used) - 1):
        raise DecodeError("bits after the last number are not zero")
    numbers = np.frombuffer(data, np.uint8)
    if 8 % width:
        return from_bits(bits_at(numbers, 0, count * width), width, np.uint8)
    for bits in (4, 2, 1):
        if bits >= width:
            pairs = numbers.astype("<u2")
            joined = pairs >> bits | (pairs & (1 << bits) - 1) << 8
            numbers = joined.astype("<u2", copy=False).view(np.uint8)
    return numbers[:count]
