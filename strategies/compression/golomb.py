"""Golomb code of positions: the gaps between them as bits (Sattler et al. 2020, Algorithm 3).

docs/protocol.md has the code. The paper writes each gap's unary part followed by its remainder;
here all unary parts come first and then all remainders. The number of bits is the same, and NumPy
can decode all positions at once.
"""

import math

import numpy as np

from strategies.compression.decoded_update import Bits, DecodeError, Positions

GOLDEN = (math.sqrt(5) + 1) / 2
MAX_PARAMETER = 31
NO_SIGNS = np.empty(0, np.bool_)


def parameter(density: float) -> int:
    """Return b* = 1 + floor(log2(log(phi - 1) / log(1 - p))), the best b for the density p.

    p, in [0, 1], is the share of entries that have a position.
    """
    if not 0 < density < 1:
        return 0
    best = 1 + math.floor(math.log2(math.log(GOLDEN - 1) / math.log1p(-density)))
    return min(max(best, 0), MAX_PARAMETER)


def position_bits(density: float) -> float:
    """Return the expected bits of one position: b* + 1 / (1 - (1 - p)^(2^b*)), p in (0, 1].

    Sattler et al. 2020, section V: 6.085, 8.108 and 10.114 at p = 1/25, 1/100 and 1/400.
    """
    b = parameter(density)
    return b + 1 / (1 - (1 - density) ** (1 << b))


def encode(positions: Positions, b: int, signs: Bits = NO_SIGNS) -> bytes:
    """Return the code of k positions, and the signs after it.

    Positions rise from 0 or above, b is from 0 to 31, and a sign takes a bit.
    """
    gaps = np.diff(positions, prepend=-1) - 1
    ends = np.cumsum((gaps >> b) + 1)
    unary = np.ones(int(ends[-1]) if len(ends) else 0, np.bool_)
    unary[ends - 1] = False
    remainders = np.empty((len(gaps), b), np.bool_)
    for column in range(b):
        remainders[:, column] = gaps & (1 << (b - 1 - column))
    return np.packbits(np.concatenate([unary, remainders.reshape(-1), signs])).tobytes()


def decode(data: bytes, b: int, count: int, size: int, signs: int = 0) -> tuple[Positions, Bits]:
    """Return (positions, signs) that `encode` wrote, exactly these in these bytes.

    Time and memory are bounded by ``count`` and ``size``, which the caller has compared.

    Args:
        data: The bytes.
        b: The Golomb parameter.
        count: k, the number of positions.
        size: n.
        signs: The number of bits after the positions.

    Raises:
        DecodeError: b or k fits no vector of n entries; a position is beyond it; bits are missing,
            left over, or not zero after the last bit.
    """
    if b > MAX_PARAMETER or count > size:
        raise DecodeError(f"b = {b} and k = {count} do not fit {size} entries")
    max_unary = count + (size >> b)  # of positions within the vector; keeps sums within 64 bits
    most = max_unary + count * b + signs
    if len(data) > (most + 7) // 8:
        raise DecodeError(f"{len(data)} bytes where {most} bits are the most there can be")
    bits = np.unpackbits(np.frombuffer(data, np.uint8)).view(np.bool_)
    ends = np.flatnonzero(~bits[:max_unary])[:count]
    if len(ends) < count:
        raise DecodeError(f"{len(ends)} of {count} positions end within the bits and the vector")
    unary = int(ends[-1]) + 1 if count else 0
    end = unary + count * b
    if not 0 <= len(bits) - (end + signs) < 8 or bits[end + signs :].any():
        raise DecodeError(f"{len(bits)} bits where {end + signs} and zeros to fill are needed")
    gaps = (np.diff(ends, prepend=-1) - 1) << b
    remainders = bits[unary:end].reshape(count, b)
    for column in range(b):
        gaps |= remainders[:, column].astype(np.int64) << (b - 1 - column)
    positions = np.cumsum(gaps + 1) - 1
    if count and positions[-1] >= size:
        raise DecodeError(f"position {positions[-1]} lies beyond the vector's {size} entries")
    return positions, bits[end : end + signs]
