"""Small numbers in bytes, ``width`` bits each, the most significant bit first.

Numbers whose width divides 8 are joined two by two until they fill bytes. Of the others, eight form
a 64-bit word, a byte each. Three steps pack the used bits: of single bytes, of pairs of bytes and
of groups of four.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from .decoded_update import Bits, DecodeError

WORD = 2**64 - 1


def join_bits(parts: Iterable[Bits]) -> bytes:
    """Return bits, one part after the other, as bytes; the last byte is filled with zeros."""
    data, rest = bytearray(), np.empty(0, np.bool_)
    for part in parts:
        bits = np.concatenate([rest, part]) if len(rest) else part
        whole = len(bits) // 8 * 8
        data += np.packbits(bits[:whole]).tobytes()
        rest = bits[whole:]
    return bytes(data + np.packbits(rest).tobytes())


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
    padded = np.zeros(-(-len(numbers) // 8) * 8, np.uint8)
    padded[: len(numbers)] = numbers
    size = packed_size(len(numbers), width)
    if 8 % width == 0:
        for bits in (1, 2, 4):
            if bits >= width:
                pairs = padded.view("<u2")  # the first number is the low byte
                padded = (pairs << bits | pairs >> 8).astype(np.uint8)
        return padded.tobytes()[:size]
    words = padded.view(">u8").astype(np.uint64)
    for lane in (8, 16, 32):
        low = words & np.uint64(WORD // ((1 << lane) + 1))  # of each two lanes
        words = low | (words ^ low) >> np.uint64(lane - width * lane // 8)
    used = words.astype(">u8").view(np.uint8).reshape(-1, 8)[:, 8 - width :]
    return used.tobytes()[:size]


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
    if 8 % width == 0:
        for bits in (4, 2, 1):
            if bits >= width:
                pairs = numbers.astype("<u2")
                joined = pairs >> bits | (pairs & (1 << bits) - 1) << 8
                numbers = joined.astype("<u2", copy=False).view(np.uint8)
        return numbers[:count]
    padded = np.zeros((-(-count // 8), 8), np.uint8)
    packed = np.zeros(len(padded) * width, np.uint8)
    packed[: len(data)] = numbers
    padded[:, 8 - width :] = packed.reshape(-1, width)
    words = padded.view(">u8").astype(np.uint64)
    for lane in (32, 16, 8):
        bits = width * lane // 8
        low = words & np.uint64(((1 << bits) - 1) * (WORD // ((1 << 2 * lane) - 1)))
        words = low | (words ^ low) << np.uint64(lane - bits)
    return words.astype(">u8").view(np.uint8).reshape(-1)[:count]
