"""What clients add up under their masks: the numbers of an update, and two that describe it.

The two are the clients' root mean square, as its logarithm in whole steps, and how many values were
clipped. All are words modulo 2^32; of the update's, only as many bits travel as the sum needs.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..compression.decoded_update import DecodeError
from ..compression.shared_entries import Numbers, bounded, pack, root_mean_square, unpack
from .primitives import Words

EXTRAS = 2
# The code of a root mean square r is STEPS (log2 r - LEAST), r from 2^-60 to 2^64.
_STEPS, _LEAST = 1 << 12, -60


def ring_bits(bits: int, cohort: int) -> int:
    """Return r: sums over n clients of numbers below 2^bits - 1 are below 2^r."""
    return bits + (cohort - 1).bit_length()


def extras_of(values: NDArray[np.float32], scale: float) -> list[int]:
    """Return the two numbers that describe the values of an update, which are clipped at c."""
    code = round(_STEPS * (math.log2(bounded(root_mean_square(values))) - _LEAST))
    return [code, int(np.count_nonzero(np.abs(values) > scale))]


def pack_words(words: Words, bits: int) -> bytes:
    """Return masked words as bytes: ``bits`` bits of each number, 32 of the last two."""
    numbers, extras = words[:-EXTRAS], words[-EXTRAS:]
    numbers = numbers & np.uint32((1 << bits) - 1)
    return pack(numbers, bits) + extras.astype("<u4").tobytes()


def unpack_words(data: bytes, count: int, bits: int) -> Words:
    """Return the words of ``count`` numbers and the last two; DecodeError for another length."""
    if len(data) < (tail := 4 * EXTRAS):
        raise DecodeError(f"{len(data)} bytes, the last two words alone take {tail}")
    numbers = unpack(data[:-tail], count, bits)
    return np.concatenate([numbers.astype(np.uint32), np.frombuffer(data[-tail:], "<u4")])


@dataclass(frozen=True)
class Sum:
    """An unmasked sum.

    Attributes:
        numbers: The sum of the clients' numbers, int64 (k,).
        root_mean_square: The geometric mean of the clients'.
        clipped: The share of the values that were clipped.
    """

    numbers: Numbers
    root_mean_square: float
    clipped: float


def read_sum(words: Words, clients: int, bits: int, most: int) -> Sum:
    """Return the sum over so many clients that unmasked words stand for.

    Args:
        words: The words.
        clients: How many clients are in the sum.
        bits: r.
        most: The largest number of a client.

    Raises:
        DecodeError: No such sum exists: a client sent a wrong share, or wrong numbers.
    """
    numbers = (words[:-EXTRAS] & np.uint32((1 << bits) - 1)).astype(np.int64)
    code, clipped = (int(word) for word in words[-EXTRAS:])
    mean = code / clients / _STEPS + _LEAST
    if (numbers > clients * most).any() or not mean <= 64 or clipped > clients * len(numbers):
        raise DecodeError("what was unmasked is no sum of updates: a share or an update was wrong")
    return Sum(numbers, 2.0**mean, clipped / (clients * max(len(numbers), 1)))
