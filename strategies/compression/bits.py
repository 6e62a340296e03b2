"""Bits in bytes, the most significant first, padded with zeros to whole bytes."""

import numpy as np

from strategies.compression.update import Bits, CodecError


def pack(*parts: Bits) -> bytes:
    """Return the parts' zeros and ones (uint8), one after the other, as bytes."""
    return np.packbits(np.concatenate(parts)).tobytes()


def unpack(data: bytes, most: int) -> Bits:
    """Return the bits of ``data`` as uint8 zeros and ones.

    Raises:
        CodecError: More bytes than ``most`` bits fill; nothing was allocated for them.
    """
    if len(data) > (most + 7) // 8:
        raise CodecError(f"{len(data)} bytes where {most} bits are the most there can be")
    return np.unpackbits(np.frombuffer(data, np.uint8))


def check_end(bits: Bits, used: int) -> None:
    """Check that ``used`` bits are all there are, but for zeros that fill the last byte.

    Raises:
        CodecError: Bits are missing, left over, or the padding is not zero.
    """
    if used > len(bits):
        raise CodecError(f"{len(bits)} bits where {used} are needed")
    if len(bits) - used >= 8 or bits[used:].any():
        raise CodecError(f"bits are left over after the {used} that were expected")
