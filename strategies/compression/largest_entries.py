"""Selection of the k entries of an update that are largest in magnitude.

F. Sattler, S. Wiedemann, K.-R. Müller, W. Samek: Robust and Communication-Efficient Federated
Learning from Non-IID Data. IEEE TNNLS 31(9), 2020, arXiv 1903.02891, Algorithm 1. Its p is the
sparsity: the share of the entries that is kept.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from strategies.compression.decoded_update import Positions, Vector

# All bits of a float32 but its sign.
MAGNITUDE_BITS = np.int32(0x7FFFFFFF)
# Vectors of at least this size are thresholded by a sample of about that size first.
MIN_SIZE_FOR_SAMPLE, SAMPLE_SIZE = 1 << 16, 1 << 14
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


def largest(values: Vector, count: int) -> Positions:
    """Return the rising positions of the ``count`` entries largest in magnitude.

    Exactly ``count``, even if several entries tie for the last place (then the first of them are
    taken), unless fewer entries are nonzero: zeros are never kept. The values are float32 (n,),
    finite, and the count is from 0 to n.
    """
    # The bits of a float32 without its sign order like its magnitude: integers partition faster,
    # denormals are told from zero whatever the processor's settings, and nothing is rounded.
    magnitudes = values.view(np.int32) & MAGNITUDE_BITS
    if count <= 0:
        return np.empty(0, np.int64)
    if len(magnitudes) < MIN_SIZE_FOR_SAMPLE:
        return _largest(magnitudes, count)
    # Partitioning takes longest, most of all where many entries are equal, as the zeros of a mean
    # of sparse updates are. So entries below a threshold are left out first.
    threshold = _sampled_threshold(magnitudes, count)
    likely = magnitudes >= threshold
    found = np.count_nonzero(likely)
    if found > len(magnitudes) // 8 or (found < count and threshold > 1):
        return _largest(magnitudes, count)
    candidates = np.flatnonzero(likely)
    return candidates[_largest(magnitudes[candidates], count)]


def _largest(magnitudes: NDArray[np.int32], count: int) -> Positions:
    """Return the rising positions of the ``count`` largest: of ties the first, never zeros."""
    if count < len(magnitudes):
        threshold = np.partition(magnitudes, len(magnitudes) - count)[len(magnitudes) - count]
    else:
        threshold = np.int32(0)
    if threshold == 0:
        return np.flatnonzero(magnitudes > 0)
    kept = np.flatnonzero(magnitudes >= threshold)
    surplus = len(kept) - count
    if surplus:
        tied = np.flatnonzero(magnitudes[kept] == threshold)
        kept = np.delete(kept, tied[len(tied) - surplus :])
    return kept


def _sampled_threshold(magnitudes: NDArray[np.int32], count: int) -> np.int32:
    """Return a number >= 1 that, by a sample, a few more than ``count`` entries reach."""
    stride = len(magnitudes) // SAMPLE_SIZE | 1  # odd: in step with no row of a matrix
    sample = magnitudes[::stride]
    expected = count * len(sample) / len(magnitudes)
    rank = math.ceil(expected + 4 * math.sqrt(expected) + 4)
    if rank > len(sample):
        return np.int32(1)
    threshold: np.int32 = np.partition(sample, len(sample) - rank)[len(sample) - rank]
    return max(threshold, np.int32(1))


def largest_of_blocks(values: Vector, sparsity: float, blocks: Sequence[int]) -> list[Positions]:
    """Return `largest` of every block, with k = `keep_count`, as positions in the whole vector."""
    found, start = [], 0
    for size in blocks:
        block = values[start : start + size]
        found.append(largest(block, keep_count(size, sparsity)) + start)
        start += size
    return found
