"""Entries at random positions, which are sent as a seed (random-k sparsification).

J. Konecny et al.: Federated Learning: Strategies for Improving Communication Efficiency. 2016,
arXiv 1610.05492, section 2 ("random mask"). One entry is drawn from each of k stretches of n/k, the
first of which begins at a random entry. Like drawing k of n, this gives each entry the chance k/n,
but it takes only k random numbers.
"""

import numpy as np
from pydantic.dataclasses import dataclass

from ..registry import Share
from .compressor import Compressor
from .decoded_update import (
    DecodeError,
    Positions,
    Update,
    Vector,
    read_floats,
    sparse_or_dense,
)
from .floats import BITS
from .vector_layout import Layout

SEED_BYTES = 8


@dataclass(frozen=True)
class RandomEntries(Compressor):
    """Sends k = max(p n, 1) entries, p n rounded, each as likely as any other.

    Args:
        sparsity: p, the share of the entries that is sent.
        unbiased: Whether they are sent n/k times as large, so that the mean over seeds is the
            update: E||Q(v) - v||^2 = (n/k - 1) ||v||^2. For error feedback they must not be.
    """

    sparsity: Share = 0.01
    unbiased: bool = False

    def encode(self, vector: Vector, layout: Layout, rng: np.random.Generator) -> bytes:
        """Return the update's bytes."""
        seed = int(rng.integers(2**64, dtype=np.uint64))
        values = vector[self._positions(seed, len(vector))]
        if self.unbiased:
            bound, scaled = np.finfo(np.float32).max, values.astype(np.float64)
            scaled *= len(vector) / max(len(values), 1)
            values = np.clip(scaled, -bound, bound, out=scaled).astype(np.float32)
        sent = values.astype("<f4", copy=False)
        return b"".join([seed.to_bytes(SEED_BYTES, "little"), sent.data])

    def decode(self, data: bytes, layout: Layout) -> Update:
        """Return the update; DecodeError for another length, or a value that is NaN or infinite."""
        count = self._count(layout.size)
        if len(data) != SEED_BYTES + 4 * count:
            raise DecodeError(f"{len(data)} bytes, not {SEED_BYTES} and 4 for each of {count}")
        values = read_floats(memoryview(data)[SEED_BYTES:])
        seed = int.from_bytes(data[:SEED_BYTES], "little")
        positions, kept = self._positions(seed, layout.size), values != 0
        return sparse_or_dense(layout.size, positions[kept], values[kept])

    def error_bound(self, size: int) -> float:
        """Return 1 - p, or 1/p - 1 where the entries are scaled up."""
        share = self._count(size) / size if size else 1.0
        return 1 / share - 1 if self.unbiased else 1 - share

    def expected_bits(self, layout: Layout) -> float:
        """Return 32 bits for each of the k entries, and the seed's."""
        return float(BITS * self._count(layout.size) + 8 * SEED_BYTES)

    def _count(self, size: int) -> int:
        return mask_size(size, self.sparsity)

    def _positions(self, seed: int, size: int) -> Positions:
        return random_positions(seed, size, self._count(size))


def mask_size(size: int, sparsity: float) -> int:
    """Return k = max(p n, 1), p n rounded; 0 for an empty vector."""
    return min(max(round(sparsity * size), 1), size)


def random_positions(seed: int, size: int, count: int) -> Positions:
    """Return ``count`` rising positions below ``size``, drawn by a seed below 2^64."""
    if count == size:
        return np.arange(size)
    # NumPy keeps the streams of bit generators the same in all its versions.
    philox = np.random.Philox(key=seed)
    first = (int(philox.random_raw()) >> 32) * size >> 32
    borders = np.arange(count + 1) * size // count
    fractions = (philox.random_raw(count) >> np.uint64(32)).astype(np.int64)  # of 2^32
    positions = first + borders[:-1] + (fractions * np.diff(borders) >> 32)
    end = np.searchsorted(positions, size)  # those beyond the end wrap around
    positions[end:] -= size
    return np.concatenate([positions[end:], positions[:end]])
