"""Small numbers in bytes, ``width`` bits each, the most significant bit first.

Eight numbers form a 64-bit word, a byte each. Three steps pack the used bits: of single bytes, of
pairs of bytes and of groups of four.
"""

import numpy as np
from numpy.typing import NDArray

from strategies.compression.decoded_update import DecodeError

WORD = 2**64 - 1


def packed_size(count: int, width: int) -> int:
    """Return the bytes of this many numbers; the last byte is filled with zeros."""
    return -(-count * width // 8)


def pack(numbers: NDArray[np.uint8], width: int) -> bytes:
    """Return numbers below 2^width, uint8 (n,), as bytes; ``width`` is from 1 to 8."""
    padded = np.zeros(-(-len(numbers) // 8) * 8, np.uint8)
    padded[: len(numbers)] = numbers
    words = padded.view(">u8").astype(np.uint64)
    for lane in (8, 16, 32):
        low = words & np.uint64(WORD // ((1 << lane) + 1))  # of each two lanes
        words = low | (words ^ low) >> np.uint64(lane - width * lane // 8)
    used = words.astype(">u8").view(np.uint8).reshape(-1, 8)[:, 8 - width :]
    return used.tobytes()[: packed_size(len(numbers), width)]


def unpack(data: bytes, count: int, width: int) -> NDArray[np.uint8]:
    """Return the numbers that `pack` wrote, uint8 (count,).

    Raises:
        DecodeError: Another number of bytes, or the padding is not zero. Nothing was allocated.
    """
    if len(data) != packed_size(count, width):
        raise DecodeError(f"{len(data)} bytes, not {packed_size(count, width)} for {count} numbers")
    used = -count * width % 8
    if data and data[-1] & ((1 << used) - 1):
        raise DecodeError("bits after the last number are not zero")
    padded = np.zeros((-(-count // 8), 8), np.uint8)
    packed = np.frombuffer(data.ljust(len(padded) * width, b"\0"), np.uint8)
    padded[:, 8 - width :] = packed.reshape(-1, width)
    words = padded.view(">u8").astype(np.uint64)
    for lane in (32, 16, 8):
        bits = width * lane // 8
        low = words & np.uint64(((1 << bits) - 1) * (WORD // ((1 << 2 * lane) - 1)))
        words = low | (words ^ low) << np.uint64(lane - bits)
    return words.astype(">u8").view(np.uint8).reshape(-1)[:count]
