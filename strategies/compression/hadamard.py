"""The randomised Hadamard transform: a rotation after which all entries are about as large.

Vargaftik et al. 2021 (`rotated`), section 5. A vector is rotated in blocks of 2^13 entries, and
what is left in blocks of the powers of two that it is the sum of, so that nothing is padded.
"""

import numpy as np
from numpy.typing import NDArray

BLOCK = 2**13
# Rows that are transformed at a time: 1 MB, which stays in the cache. Half the time of all at once.
ROWS = 16

Matrix = NDArray[np.float64]


def block_sizes(size: int) -> list[tuple[int, int]]:
    """Return (how many, their size) of the blocks of a vector, the largest first."""
    whole, rest = divmod(size, BLOCK)
    sizes = [(whole, BLOCK)] if whole else []
    return sizes + [(1, 1 << place) for place in range(12, -1, -1) if rest >> place & 1]


def rotate(vector: NDArray[np.float64], seed: int) -> list[Matrix]:
    """Return the rotated blocks, (how many, size) each: H D v, H orthonormal, D random signs."""
    blocks, start = [], 0
    signs = _signs(seed, len(vector))
    for count, size in block_sizes(len(vector)):
        part = slice(start, start + count * size)
        blocks.append(_transform((vector[part] * signs[part]).reshape(count, size)))
        start += count * size
    return blocks


def rotate_back(blocks: list[Matrix], seed: int) -> NDArray[np.float64]:
    """Return the vector whose `rotate` gives these blocks."""
    back = [_transform(block).reshape(-1) for block in blocks]
    vector = np.concatenate([np.empty(0), *back])
    return vector * _signs(seed, len(vector))


def _signs(seed: int, size: int) -> NDArray[np.int8]:
    """Return random signs; NumPy keeps the streams of bit generators the same in all versions."""
    words = np.random.Philox(key=seed).random_raw(-(-size // 64)).astype("<u8")
    bits = np.unpackbits(words.view(np.uint8))[:size]
    return 1 - 2 * bits.astype(np.int8)


def _transform(rows: Matrix) -> Matrix:
    """Return each row's Walsh-Hadamard transform, orthonormal, which is its own inverse."""
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
