"""Golomb code of positions: the gaps between them as bits (Sattler et al. 2020, Algorithm 3).

docs/protocol.md has the code. The paper writes each gap's unary part followed by its remainder;
here all unary parts come first and then all remainders. The number of bits is the same, and NumPy
can decode all positions at once.
"""

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from .bit_packing import bits_at, join_bits
from .decoded_update import Bits, DecodeError, Positions

GOLDEN = (math.sqrt(5) + 1) / 2
MAX_PARAMETER = 31
NO_SIGNS = np.empty(0, np.bool_)
# Positions, or bits of the unary parts, that are encoded or decoded at a time, in the cache.
BLOCK = 1 << 14


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
    return join_bits(_code(positions, b, signs))


def _code(positions: Positions, b: int, signs: Bits) -> Iterator[Bits]:
    """Yield the bits of all unary parts, of all remainders, and the signs."""
    for gaps in _gaps(positions):
        ends = np.cumsum((gaps >> b) + 1)
        unary = np.ones(int(ends[-1]), np.bool_)
        unary[ends - 1] = False
        yield unary
    for gaps in _gaps(positions) if b else ():
        remainders = np.empty((len(gaps), b), np.bool_)
        for column in range(b):
            remainders[:, column] = gaps & (1 << (b - 1 - column))
        yield remainders.reshape(-1)
    yield signs


def _gaps(positions: Positions) -> Iterator[Positions]:
    """Yield blocks of how many entries lie between each position and the one before."""
    last = np.int64(-1)
    for start in range(0, len(positions), BLOCK):
        block = positions[start : start + BLOCK]
        yield np.diff(block, prepend=last) - 1
        last = block[-1]


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
    positions = _unary_ends(code, count, min(max_unary, num_bits))
    unary = int(positions[-1]) + 1 if count else 0
    end = unary + count * b
    if not 0 <= num_bits - (end + signs) < 8 or bits_at(code, end + signs, 7).any():
        raise DecodeError(f"{num_bits} bits where {end + signs} and zeros to fill are needed")
    if b:  # else each position is where its unary part ends
        _add_remainders(positions, code, unary, b)
    if count and positions[-1] >= size:
        raise DecodeError(f"position {positions[-1]} lies beyond the vector's {size} entries")
    return positions, bits_at(code, end, signs)


def _unary_ends(code: NDArray[np.uint8], count: int, most: int) -> Positions:
    """Return the places of the first ``count`` zeros among the first ``most`` bits."""
    ends, found = np.empty(count, np.int64), 0
    for start in range(0, most, BLOCK):
        bits = bits_at(code, start, min(BLOCK, most - start))
        places = np.flatnonzero(~bits)[: count - found]
        np.add(places, start, out=ends[found : found + len(places)])
        found += len(places)
        if found == count:
            break
    if found < count:
        raise DecodeError(f"{found} of {count} positions end within the bits and the vector")
    return ends


def _add_remainders(ends: Positions, code: NDArray[np.uint8], start: int, b: int) -> None:
    """Turn the ends of the unary parts into positions; remainders begin at bit ``start``."""
    total = np.int64(0)  # of the remainders so far
    for first in range(0, len(ends), BLOCK):
        block = ends[first : first + BLOCK]
        bits = bits_at(code, start + first * b, len(block) * b).reshape(-1, b)
        remainders = np.zeros_like(block)
        for column in range(b):
            remainders |= bits[:, column].astype(np.int64) << (b - 1 - column)
        remainders[0] += total
        np.cumsum(remainders, out=remainders)
        total = remainders[-1]
        numbers = np.arange(first, first + len(block))
        block -= numbers  # leaves how many ones come before: the sum of the quotients
        block <<= b
        block += remainders
        block += numbers
