"""Random rotations from Hadamard transforms, which make all entries about equally large.

One randomised Hadamard transform is not the uniform rotation that DRIVE's and EDEN's theorems ask
for (`rotated`): it turns a vector with one large entry into entries of equal size, and the mean of
what is decoded stays off. Two in blocks of 2^13 entries, and three in smaller blocks, come so close
that no bias can be measured (tests/unit/strategies/compression/test_bias.py).

Entries are whole numbers, in float64. With R transforms of 2^m entries, and magnitudes up to 2^24,
every sum is below 2^(24 + (R + 1) m / 2) <= 2^48: float64 has it exactly, so that the bits are the
same in whatever order a library adds. Nothing is divided by the root of 2^m: two rotations, there
and back, multiply by 2^(R m).
"""

from collections.abc import Callable, Iterator
from functools import cache
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from .decoded_update import Vector, signs_of

BLOCK, SMALLEST = 2**13, 2**8
# Blocks that are rotated at a time: 1 MB, which stay in the cache.
ROWS = 16
MAX_ROTATIONS = 3

# Steps of a block's largest entry, in which its entries are whole numbers; scales are divided by
# it, so that they are about as large as entries.
STEPS = 2.0**24
FLOAT32_MAX = float(np.finfo(np.float32).max)

Matrix = NDArray[np.float64]


def block_sizes(size: int) -> list[int]:
    """Return the sizes of a vector's blocks.

    Blocks have `BLOCK` entries; what is left is padded with zeros to a multiple of `SMALLEST` and
    cut into the powers of two that sum up to it, falling.
    """
    padded = -(-size // SMALLEST) * SMALLEST
    powers = (BLOCK >> place for place in range(1, 6))
    return [BLOCK] * (padded // BLOCK) + [power for power in powers if padded & power]


class Rotation:
    """A random rotation of vectors of n entries, whose signs follow from a seed of 64 bits."""

    def __init__(self, seed: int, size: int) -> None:
        self._size, self._blocks = size, block_sizes(size)
        # NumPy keeps the streams of bit generators the same in all versions.
        words = np.random.Philox(key=seed).random_raw(MAX_ROTATIONS * sum(self._blocks) // 64)
        self._signs = words.astype("<u8").view(np.uint8).reshape(MAX_ROTATIONS, -1)

    def forward(self, vector: Vector) -> Iterator[tuple[Matrix, Matrix]]:
        """Yield (rotated blocks, units): ... H D_2 H D_1 times each block, in steps of 2^-24.

        Blocks of one size at a time, float64 (how many, their size), and a unit for each: a block
        turned `back` and multiplied by its unit is the original.
        """
        for part, block in self._parts():
            rows = np.zeros(part.stop - part.start, np.float32)
            rows[: len(vector[part])] = vector[part]
            rows = rows.reshape(-1, block)
            step = np.abs(rows).max(axis=1).astype(np.float64) / STEPS
            step[step == 0] = 1
            rows *= self._signs_of(0, part, block)
            rotated = rows / step[:, None]
            rotated = _transform(np.rint(rotated, out=rotated))
            for row in range(1, rotations(block)):
                rotated *= self._signs_of(row, part, block)
                rotated = _transform(rotated)
            yield rotated, step * (STEPS / block ** rotations(block))

    def back(self, levels: Callable[[slice], Matrix], units: Matrix) -> Vector:
        """Return the vector of blocks of levels, turned back, times a unit / 2^24 for each block.

        ``levels`` returns the levels, whole numbers, of some entries, those of the padding
        included.
        """
        values, first = np.empty(sum(self._blocks), np.float32), 0
        for part, block in self._parts():
            rows = levels(part).reshape(-1, block)
            for row in reversed(range(rotations(block))):
                rows = _transform(rows)
                rows *= self._signs_of(row, part, block)
            rows *= units[first : first + len(rows), None] / STEPS
            rows += 0.0  # never -0
            first += len(rows)
            values[part] = rows.clip(-FLOAT32_MAX, FLOAT32_MAX, out=rows).reshape(-1)
        return values[: self._size]

    def _parts(self) -> Iterator[tuple[slice, int]]:
        """Yield (which entries, their blocks' size) of up to `ROWS` blocks of one size."""
        start = 0
        for block, same in groupby(self._blocks):
            end = start + block * len(list(same))
            for first in range(start, end, ROWS * block):
                yield slice(first, min(first + ROWS * block, end)), block
            start = end

    def _signs_of(self, row: int, part: slice, block: int) -> NDArray[np.int8]:
        bits = np.unpackbits(self._signs[row, part.start // 8 : part.stop // 8])
        return signs_of(bits.view(np.bool_)).reshape(-1, block)


def rotations(block: int) -> int:
    """Return R, how many transforms rotate a block of that size."""
    return 2 if block == BLOCK else MAX_ROTATIONS


@cache
def _hadamard(size: int) -> Matrix:
    """Return Sylvester's matrix of a power of two: H_2n = [[H_n, H_n], [H_n, -H_n]]."""
    matrix = np.ones((1, 1))
    while len(matrix) < size:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return matrix


def _transform(rows: Matrix) -> Matrix:
    """Return each row's Walsh-Hadamard transform H v, with entries of H equal to 1 or -1.

    H is the Kronecker product of four smaller matrices. Each turn multiplies along the first axis
    of what is left and makes it the last, so that the entries are in their order again in the end.
    """
    count, size = rows.shape
    places = size.bit_length() - 1
    for factor in range(4):
        side = 1 << (places + factor) // 4
        rows = rows.reshape(count, side, -1).swapaxes(1, 2) @ _hadamard(side)
    return rows.reshape(count, size)
