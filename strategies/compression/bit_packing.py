"""Bits in bytes, the most significant first, padded with zeros to whole bytes."""

import numpy as np
from numpy.typing import NDArray

from strategies.compression.decoded_update import Bits, DecodeError


def pack(*parts: Bits) -> bytes:
    """Return the parts' zeros and ones (uint8), one after the other, as bytes."""
    return np.packbits(np.concatenate(parts)).tobytes()


def unpack(data: bytes, max_bits: int) -> Bits:
    """Return the bits of ``data`` as uint8 zeros and ones.

    Raises:
        DecodeError: There are more bytes than ``max_bits`` bits fill; nothing was allocated.
    """
    if len(data) > (max_bits + 7) // 8:
        raise DecodeError(f"{len(data)} bytes where {max_bits} bits are the most there can be")
    return np.unpackbits(np.frombuffer(data, np.uint8))


def check_end(bits: Bits, used: int) -> None:
    """Check that nothing follows the first ``used`` bits but zeros that fill the last byte.

    Raises:
        DecodeError: Bits are missing, left over, or the padding is not zero.
    """
    if used > len(bits):
        raise DecodeError(f"{len(bits)} bits where {used} are needed")
    if len(bits) - used >= 8 or bits[used:].any():
        raise DecodeError(f"bits are left over after the {used} that were expected")


def to_bits(numbers: NDArray[np.uint8], width: int) -> Bits:
    """Return the lowest ``width`` bits of each number, the most significant first."""
    return np.unpackbits(numbers[:, None], axis=1)[:, 8 - width :].reshape(-1)


def from_bits(bits: Bits, count: int, width: int) -> NDArray[np.int64]:
    """Return the numbers that `to_bits` wrote."""
    weights = 1 << np.arange(width - 1, -1, -1)
    return bits[: count * width].reshape(count, width).astype(np.int64) @ weights
