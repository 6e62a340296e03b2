"""Random rotations from Hadamard transforms, after which all entries are about as large.

One randomised Hadamard transform is not the uniform rotation that DRIVE's and EDEN's theorems ask
for (`rotated`): of a vector with one large entry it gives entries of one magnitude, and the mean of
what is decoded stays off. Two in blocks of 2^13 entries, and three in smaller ones, come so close
that no bias can be measured (tests/unit/strategies/compression/test_bias.py).
"""

import numpy as np
from numpy.typing import NDArray

BLOCK, SMALLEST = 2**13, 2**8
# How many transforms rotate a block of `BLOCK` entries, and a smaller one.
ROTATIONS, SMALL_ROTATIONS = 2, 3
# Rows that are transformed at a time: 1 MB, which stays in the cache. Half the time of all at once.
ROWS = 16

Matrix = NDArray[np.float64]


def block_sizes(size: int) -> list[tuple[int, int]]:
    """Return (how many, their size) of the blocks of a vector, the largest first.

    They are of `BLOCK` entries, and of the powers of two that sum up to what is left, which is
    padded with zeros to a multiple of `SMALLEST`.
    """
    whole, rest = divmod(size, BLOCK)
    padded = -(-rest // SMALLEST) * SMALLEST
    whole, padded = (whole + 1, 0) if padded == BLOCK else (whole, padded)
    sizes = [(whole, BLOCK)] if whole else []
    places = range(BLOCK.bit_length() - 2, SMALLEST.bit_length() - 2, -1)
    return sizes + [(1, 1 << place) for place in places if padded >> place & 1]


def padded_size(size: int) -> int:
    """Return the entries that all blocks of a vector have together."""
    return sum(count * block for count, block in block_sizes(size))


def rotate(vector: NDArray[np.float64], seed: int) -> list[Matrix]:
    """Return the rotated blocks, (how many, size) each: H D_2 H D_1 v.

    H is the orthonormal Hadamard matrix, D_1 and D_2 are random signs; blocks of fewer than `BLOCK`
    entries have a third pair.
    """
    padded = np.zeros(padded_size(len(vector)))
    padded[: len(vector)] = vector
    blocks, start = [], 0
    signs = _signs(seed, len(padded))
    for count, size in block_sizes(len(vector)):
        part = slice(start, start + count * size)
        rows = padded[part].reshape(count, size)
        for sign in signs[: _rotations(size)]:
            rows = _transform(rows * sign[part].reshape(count, size))
        blocks.append(rows)
        start += count * size
    return blocks


def rotate_back(blocks: list[Matrix], seed: int, size: int) -> NDArray[np.float64]:
    """Return the vector of ``size`` entries whose `rotate` gives these blocks."""
    signs = _signs(seed, padded_size(size))
    parts, start = [np.empty(0)], 0
    for rows in blocks:
        part = slice(start, start + rows.size)
        for sign in signs[: _rotations(rows.shape[1])][::-1]:
            rows = _transform(rows) * sign[part].reshape(rows.shape)
        parts.append(rows.reshape(-1))
        start += rows.size
    return np.concatenate(parts)[:size]


def _rotations(size: int) -> int:
    return ROTATIONS if size == BLOCK else SMALL_ROTATIONS


def _signs(seed: int, size: int) -> NDArray[np.int8]:
    """Return random signs, (`SMALL_ROTATIONS`, size).

    NumPy keeps the streams of bit generators the same in all versions.
    """
    words = np.random.Philox(key=seed).random_raw(-(-SMALL_ROTATIONS * size // 64)).astype("<u8")
    bits = np.unpackbits(words.view(np.uint8))[: SMALL_ROTATIONS * size]
    return (1 - 2 * bits.astype(np.int8)).reshape(SMALL_ROTATIONS, size)


def _transform(rows: Matrix) -> Matrix:
    """Return each row's Walsh-Hadamard transform, orthonormal, which is its own inverse.

    In stage i entry j, whose bit i is 0, and entry j + 2^i become their sum and their difference;
    the stages run from i = 0 up, and every entry is divided by the root of the size at the end.
    """
    count, size = rows.shape
    transformed = np.empty_like(rows)
    for start in range(0, count, ROWS):
        part = slice(start, start + ROWS)
        columns = np.ascontiguousarray(rows[part].T)
        half = 1
        while half < size:
            pairs = columns.reshape(size // (2 * half), 2, -1)
            total = pairs[:, 0] + pairs[:, 1]
            np.subtract(pairs[:, 0], pairs[:, 1], out=pairs[:, 1])
            pairs[:, 0] = total
            half *= 2
        transformed[part] = columns.T / np.sqrt(size)
    return transformed
