"""Which entries of an update are kept: the largest in magnitude.

F. Sattler, S. Wiedemann, K.-R. Müller, W. Samek: Robust and Communication-Efficient Federated
Learning from Non-IID Data. IEEE TNNLS 31(9), 2020, arXiv 1903.02891, Algorithm 1. Its p is the
sparsity: the share of the entries that is kept.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from strategies.compression.update import Positions, Vector

MAGNITUDE = np.int32(0x7FFFFFFF)
# From so many entries on, a sample of about so many says which of them to look at.
SAMPLED_FROM, SAMPLE = 1 << 16, 1 << 14


def check_sparsity(name: str, sparsity: object) -> float:
    """Return the sparsity p.

    Raises:
        ValueError: It is not above 0 and at most 1; ``name`` is named.
    """
    if isinstance(sparsity, bool) or not isinstance(sparsity, int | float) or not 0 < sparsity <= 1:
        raise ValueError(f"{name} = {sparsity}: give a share above 0 and at most 1, as 0.0025")
    return float(sparsity)


def keep_count(size: int, sparsity: float) -> int:
    """Return k = max(ceil(n * p), 1), as the authors' code rounds it; 0 for an empty vector.

    A product that misses a whole number by rounding alone (100 * 0.07) counts as that number.
    """
    product = size * sparsity
    nearest = round(product)
    exact = math.isclose(product, nearest, rel_tol=1e-12)
    return min(max(nearest if exact else math.ceil(product), 1), size)


def most_kept(sparsity: float, blocks: Sequence[int]) -> int:
    """Return how many entries of these blocks together are kept at the most."""
    return sum(keep_count(size, sparsity) for size in blocks)


def top_k(values: Vector, count: int) -> Positions:
    """Return the sorted positions of the ``count`` entries largest in magnitude.

    Exactly ``count``, also where several entries tie for the last place (then the first of them
    are taken), unless fewer entries than that are not zero: zeros are never kept.

    Args:
        values: float32 (n,), finite.
        count: k, 0 <= k <= n.
    """
    # The bits of a float32 without its sign order like its magnitude: integers partition faster,
    # denormals are told from zero whatever the processor's settings, and nothing is rounded.
    magnitudes = values.view(np.int32) & MAGNITUDE
    if count <= 0:
        return np.empty(0, np.int64)
    if len(magnitudes) < SAMPLED_FROM:
        return _largest(magnitudes, count)
    # Partitioning takes longest, most of all where many entries are equal, as the zeros of a mean
    # of sparse updates are. So first leave out what is certainly too small.
    least = _guess(magnitudes, count)
    likely = magnitudes >= least
    found = np.count_nonzero(likely)
    if found > len(magnitudes) // 8 or (found < count and least > 1):
        return _largest(magnitudes, count)
    candidates = np.flatnonzero(likely)
    return candidates[_largest(magnitudes[candidates], count)]


def _largest(magnitudes: NDArray[np.int32], count: int) -> Positions:
    """Return the sorted positions of the ``count`` largest, the first of those that tie, no 0."""
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


def _guess(magnitudes: NDArray[np.int32], count: int) -> np.int32:
    """Return a number >= 1 that, judged by a sample, a few more than ``count`` entries reach."""
    sample = magnitudes[:: len(magnitudes) // SAMPLE | 1]  # odd: in step with no row of a matrix
    expected = count * len(sample) / len(magnitudes)
    rank = math.ceil(expected + 4 * math.sqrt(expected) + 4)
    if rank > len(sample):
        return np.int32(1)
    guess: np.int32 = np.partition(sample, len(sample) - rank)[len(sample) - rank]
    return max(guess, np.int32(1))


def top_k_of_blocks(values: Vector, sparsity: float, blocks: Sequence[int]) -> list[Positions]:
    """Return `top_k` of every block of the vector, with k = `keep_count` of its own size.

    Args:
        values: float32 (n,), finite.
        sparsity: p.
        blocks: The blocks' sizes, which sum to n.

    Returns:
        One array of sorted positions in the whole vector per block.
    """
    found = []
    start = 0
    for size in blocks:
        block = values[start : start + size]
        found.append(top_k(block, keep_count(size, sparsity)) + start)
        start += size
    return found
