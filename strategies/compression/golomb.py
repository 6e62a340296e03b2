"""Golomb code of positions: the gaps between them as bits (Sattler et al. 2020, Algorithm 3).

With M = 2^b, the gap d >= 1 to the previous position (the first from -1) is (d - 1) div M in unary,
that many ones and a zero, and (d - 1) mod M in b bits. The paper writes these two after each other
for every position; here all unary parts come first and all remainders after them. The number of
bits is the same, and NumPy can decode all positions at once.
"""

import math

import numpy as np

from strategies.compression.decoded_update import Bits, DecodeError, Positions

GOLDEN = (math.sqrt(5) + 1) / 2
MAX_PARAMETER = 31


def parameter(density: float) -> int:
    """Return b* = 1 + floor(log2(log(phi - 1) / log(1 - p))), the best b for the density p.

    Args:
        density: p, the share of entries that have a position; in [0, 1].
    """
    if not 0 < density < 1:
        return 0
    best = 1 + math.floor(math.log2(math.log(GOLDEN - 1) / math.log1p(-density)))
    return min(max(best, 0), MAX_PARAMETER)


def position_bits(density: float) -> float:
    """Return the expected bits of one position: b* + 1 / (1 - (1 - p)^(2^b*)).

    Sattler et al. 2020, section V: 6.085, 8.108 and 10.114 at p = 1/25, 1/100 and 1/400.
    """
    b = parameter(density)
    return b + 1 / (1 - (1 - density) ** (1 << b))


def encode_positions(positions: Positions, b: int) -> Bits:
    """Return the code of sorted, distinct positions >= 0: k unary parts, then k remainders.

    Args:
        positions: int64 (k,).
        b: The Golomb parameter, 0 to 31.

    Returns:
        Bits as uint8 zeros and ones, k + sum((d - 1) div 2^b) + k * b of them.
    """
    gaps = np.diff(positions, prepend=-1) - 1
    quotients = gaps >> b
    ends = np.cumsum(quotients + 1)
    unary = np.ones(int(ends[-1]) if len(ends) else 0, np.uint8)
    unary[ends - 1] = 0
    remainders = np.empty((len(gaps), b), np.uint8)
    for column in range(b):
        remainders[:, column] = (gaps >> (b - 1 - column)) & 1
    return np.concatenate([unary, remainders.reshape(-1)])


def decode_positions(bits: Bits, count: int, b: int, size: int) -> tuple[Positions, int]:
    """Return the positions that the bits begin with, and how many bits they took.

    Time and memory are bounded by the numbers of bits and of positions.

    Args:
        bits: Zeros and ones, uint8.
        count: k, how many positions there are; checked against the bits.
        b: The Golomb parameter, 0 to 31.
        size: n; positions beyond n - 1 are refused.

    Raises:
        DecodeError: Too few bits, or a position beyond the vector.
    """
    max_unary = count + (size >> b)  # of positions within the vector; keeps sums within 64 bits
    ends = np.flatnonzero(bits[:max_unary] == 0)[:count]
    if len(ends) < count:
        raise DecodeError(f"{len(ends)} of {count} positions end within the bits and the vector")
    unary = int(ends[-1]) + 1 if count else 0
    used = unary + count * b
    if used > len(bits):
        raise DecodeError(f"the bits end within the remainders of {count} positions")
    gaps = (np.diff(ends, prepend=-1) - 1) << b
    remainders = bits[unary:used].reshape(count, b)
    for column in range(b):
        gaps |= remainders[:, column].astype(np.int64) << (b - 1 - column)
    positions = np.cumsum(gaps + 1) - 1
    if count and positions[-1] >= size:
        raise DecodeError(f"position {positions[-1]} lies beyond the vector's {size} entries")
    return positions, used


def max_bits(count: int, b: int, size: int) -> int:
    """Return the most bits that ``count`` positions in a vector of ``size`` entries can take."""
    return count * (b + 1) + (size >> b)
