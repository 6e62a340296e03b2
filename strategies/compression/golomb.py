"""Golomb code of positions: the gaps between them as bits (Sattler et al. 2020, Algorithm 3).

docs/protocol.md has the code. The paper writes each gap's unary part followed by its remainder;
here all unary parts come first and then all remainders. The number of bits is the same, and NumPy
can decode all positions at once.
"""

import math

import numpy as np

from .bit_packing import bits_at, from_bits, to_bits
from .decoded_update import Bits, DecodeError, Positions

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
    gaps = np.diff(positions, prepend=-1) - 1  # entries between each position and the one before
    ends = np.cumsum((gaps >> b) + 1)
    unary = np.ones(ends[-1] if len(ends) else 0, np.bool_)
    unary[ends - 1] = False
    return np.packbits(np.concatenate([unary, to_bits(gaps, b), signs])).tobytes()


def decode(
    data: bytes | memoryview, b: int, count: int, size: int, signs: int = 0
) -> tuple[Positions, Bits]:
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
    code, num_bits = np.frombuffer(data, np.uint8), 8 * len(data)
    least = count * (b + 1) + signs
    if num_bits < least:
        raise DecodeError(f"{num_bits} bits where {least} are the fewest there can be")
    ends = np.flatnonzero(~bits_at(code, 0, min(max_unary, num_bits)))[:count]
    if len(ends) < count:
        raise DecodeError(f"{len(ends)} of {count} positions end within the bits and the vector")
    unary = int(ends[-1]) + 1 if count else 0
    end = unary + count * b
    if not 0 <= num_bits - (end + signs) < 8 or bits_at(code, end + signs, 7).any():
        raise DecodeError(f"{num_bits} bits where {end + signs} and zeros to fill are needed")
    numbers = np.arange(count)
    positions = (ends - numbers << b) + numbers  # the ones before an end are the sum of quotients
    if b:
        positions += np.cumsum(from_bits(bits_at(code, unary, count * b), b, np.int64))
    if count and positions[-1] >= size:
        raise DecodeError(f"position {positions[-1]} lies beyond the vector's {size} entries")
    return positions, bits_at(code, end, signs)
