"""The k largest entries as signs with one magnitude per block: sparse ternary compression.

Sattler et al. 2020, arXiv 1903.02891, Algorithm 1. Positions are sent in Golomb's code (`golomb`).
"""

import math
import struct

import numpy as np
from pydantic.dataclasses import dataclass

from ..registry import Scope, Share
from . import golomb
from .compressor import Compressor
from .decoded_update import (
    DecodeError,
    Update,
    Vector,
    read_floats,
    signs_of,
    sparse_or_dense,
)
from .largest_entries import largest_of_blocks, max_kept
from .vector_layout import Layout

HEAD = struct.Struct("<BI")


@dataclass(frozen=True)
class Ternary(Compressor):
    """Sends the largest entries of each block as -mu or mu, mu being their mean magnitude.

    mu is the mean over the entries that are kept. Where a block has fewer than k that are not zero,
    the paper's formula would divide by k all the same, and its authors' code would set the zeros to
    -mu.

    Args:
        sparsity: p, the share of the entries that is kept, at least one of each block.
        scope: What a block is: every "tensor", as in the authors' code, or the whole "model".
    """

    sparsity: Share = 1 / 400
    scope: Scope = "tensor"

    def encode(self, vector: Vector, layout: Layout, rng: np.random.Generator) -> bytes:
        """Return the update's bytes."""
        blocks = layout.blocks(self.scope)
        positions = largest_of_blocks(vector, self.sparsity, blocks)
        ends = np.cumsum(blocks[:-1], dtype=np.int64)
        kept = np.split(positions, np.searchsorted(positions, ends))
        means = [np.abs(vector[part]).mean(dtype=np.float64) if len(part) else 0 for part in kept]
        magnitudes = np.array(means, "<f4")
        b = golomb.parameter(len(positions) / max(len(vector), 1))
        bits = golomb.encode(positions, b, vector[positions] < 0)
        return HEAD.pack(b, len(positions)) + magnitudes.tobytes() + bits

    def decode(self, data: bytes, layout: Layout) -> Update:
        """Return the update; DecodeError if it is none, or has more entries than p allows."""
        size, blocks = layout.size, layout.blocks(self.scope)
        start = HEAD.size + 4 * len(blocks)
        if len(data) < start:
            raise DecodeError(f"{len(data)} bytes, the head alone takes {start}")
        b, count = HEAD.unpack_from(data)
        allowed = max_kept(self.sparsity, blocks)
        if count > allowed:
            raise DecodeError(f"k = {count}, the sparsity allows {allowed}")
        magnitudes = read_floats(data[HEAD.size : start])
        code = memoryview(data)[start:]
        positions, negative = golomb.decode(code, b, count, size, signs=count)
        bounds = np.concatenate([[0], np.cumsum(blocks)])
        counts = np.diff(np.searchsorted(positions, bounds))  # of the positions in each block
        as_bits = magnitudes.view(np.int32)  # denormals count, whatever the processor's settings
        if not np.where(counts > 0, as_bits > 0, as_bits == 0).all():
            raise DecodeError("a magnitude is not a positive number, or its block has no entry")
        values = np.repeat(magnitudes, counts)
        values *= signs_of(negative)
        return sparse_or_dense(size, positions, values)

    def error_bound(self, size: int) -> float:
        """Return 1 - k / (k^2 + n - k).

        With mu the mean magnitude of the k entries that are kept, these have at most k^2 mu^2 of
        the squared norm, the others at most mu^2 each, and what is sent has k mu^2.
        """
        k = max(math.ceil(self.sparsity * size), 1)
        return 1 - k / (k * k + size - k)

    def expected_bits(self, layout: Layout) -> float:
        """Return n p positions, each with one sign bit."""
        return layout.size * self.sparsity * (golomb.position_bits(self.sparsity) + 1)
