"""Selection of the k entries of an update that are largest in magnitude.

F. Sattler, S. Wiedemann, K.-R. Müller, W. Samek: Robust and Communication-Efficient Federated
Learning from Non-IID Data. IEEE TNNLS 31(9), 2020, arXiv 1903.02891, Algorithm 1. Its p is the
sparsity: the share of the entries that is kept.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .decoded_update import Bits, Positions, Vector

# All bits of a float32 but its sign.
MAGNITUDE_BITS = np.int32(0x7FFFFFFF)
# Vectors of at least this size are thresholded by a sample of about that size first.
MIN_SIZE_FOR_SAMPLE, SAMPLE_SIZE = 1 << 16, 1 << 14
# Entries that are compared at a time, in the cache.
BLOCK = 1 << 16
# See `keep_count`.
ROUNDING_TOLERANCE = 1e-6


def keep_count(size: int, sparsity: float) -> int:
    """Return k = max(ceil(p n - 10^-6), 1), computed in float64; 0 for an empty vector.

    That is ceil(p n), as in the authors' code, except for products that exceed an integer only by
    rounding: 100 * 0.07 is 7.000000000000001 in float64. docs/protocol.md has the same rule.
    """
    return min(max(math.ceil(size * sparsity - ROUNDING_TOLERANCE), 1), size)


def max_kept(sparsity: float, blocks: Sequence[int]) -> int:
    """Return how many entries of these blocks together are kept at most."""
    return sum(keep_count(size, sparsity) for size in blocks)


def largest_of_blocks(values: Vector, sparsity: float, blocks: Sequence[int]) -> Positions:
    """Return the rising positions of the `keep_count` largest entries of every block."""
    kept, start = np.empty(len(values), np.bool_), 0
    for size in blocks:
        block = slice(start, start + size)
        kept[block] = is_largest(values[block], keep_count(size, sparsity))
        start += size
    return np.flatnonzero(kept)


def is_largest(values: Vector, count: int) -> Bits:
    """Return which of the entries are the ``count`` largest in magnitude.

    Exactly ``count``, even if several entries tie for the last place (then the first of them are
    taken), unless fewer entries are nonzero: zeros are never kept. The values are float32 (n,),
    finite, and the count is from 0 to n.
    """
    # The bits of a float32 without its sign order like its magnitude: integers partition faster,
    # denormals are told from zero whatever the processor's settings, and nothing is rounded.
    bits = values.view(np.int32)
    if count <= 0:
        return np.zeros(len(bits), np.bool_)
    if len(bits) < MIN_SIZE_FOR_SAMPLE or count == len(bits):
        return _largest(bits, count)
    # Partitioning takes longest, most of all where many entries are equal, as the zeros of a mean
    # of sparse updates are. So entries below a threshold are left out first.
    threshold = _sampled_threshold(bits, count)
    likely = _compare(np.greater_equal, bits, threshold)
    found = np.count_nonzero(likely)
    if found > len(bits) // 8 or (found < count and threshold > 1):
        return _largest(bits, count)
    candidates = np.flatnonzero(likely)
    likely[candidates] = _largest(bits[candidates], count)
    return likely


def _largest(bits: NDArray[np.int32], count: int) -> Bits:
    """Return which are the ``count`` largest magnitudes: of ties the first, never zeros."""
    threshold = np.int32(1)
    if count < len(bits):
        magnitudes = bits & MAGNITUDE_BITS
        magnitudes.partition(len(bits) - count)
        threshold = max(magnitudes[len(bits) - count], threshold)
        del magnitudes  # as large as the model
    kept = _compare(np.greater_equal, bits, threshold)
    surplus = np.count_nonzero(kept) - count
    if surplus > 0:
        tied = np.flatnonzero(_compare(np.equal, bits, threshold))
        kept[tied[len(tied) - surplus :]] = False
    return kept


def _compare(relation: np.ufunc, bits: NDArray[np.int32], threshold: np.int32) -> Bits:
    """Return whether each magnitude has the relation to the threshold, block by block."""
    found = np.empty(len(bits), np.bool_)
    for start in range(0, len(bits), BLOCK):
        block = slice(start, start + BLOCK)
        relation(bits[block] & MAGNITUDE_BITS, threshold, out=found[block])
    return found


def _sampled_threshold(bits: NDArray[np.int32], count: int) -> np.int32:
    """Return a number >= 1 that, by a sample, a few more than ``count`` magnitudes reach."""
    stride = len(bits) // SAMPLE_SIZE | 1  # odd: in step with no row of a matrix
    sample = bits[::stride] & MAGNITUDE_BITS
    expected = count * len(sample) / len(bits)
    rank = math.ceil(expected + 4 * math.sqrt(expected) + 4)
    if rank > len(sample):
        return np.int32(1)
    threshold: np.int32 = np.partition(sample, len(sample) - rank)[len(sample) - rank]
    return max(threshold, np.int32(1))
