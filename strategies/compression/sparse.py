"""The k largest entries unchanged: positions and a float32 each (top-k sparsification).

A. F. Aji, K. Heafield: Sparse Communication for Distributed Gradient Descent. EMNLP 2017, arXiv
1704.05021. Positions are sent in Golomb's code (`golomb`).
"""

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
    sparse_or_dense,
)
from .floats import BITS
from .largest_entries import MAGNITUDE_BITS, largest_of_blocks, max_kept
from .vector_layout import Layout

HEAD = struct.Struct("<BI")


@dataclass(frozen=True)
class Sparse(Compressor):
    """Sends the largest entries of each block.

    Args:
        sparsity: p, the share of the entries that is kept, at least one of each block.
        scope: The blocks: each "tensor", or the whole "model".
    """

    sparsity: Share = 0.01
    scope: Scope = "tensor"

    def encode(self, vector: Vector, layout: Layout, rng: np.random.Generator) -> bytes:
        """Return the update's bytes."""
        positions = largest_of_blocks(vector, self.sparsity, layout.blocks(self.scope))
        b = golomb.parameter(len(positions) / max(len(vector), 1))
        head, code = HEAD.pack(b, len(positions)), golomb.encode(positions, b)
        values = vector[positions].astype("<f4", copy=False)
        del positions  # as large as two models if all entries are kept
        return b"".join([head, values.data, code])

    def decode(self, data: bytes, layout: Layout) -> Update:
        """Return the update; DecodeError if invalid, or if it has more entries than p allows."""
        size = layout.size
        if len(data) < HEAD.size:
            raise DecodeError(f"{len(data)} bytes, the head alone takes {HEAD.size}")
        b, count = HEAD.unpack_from(data)
        start = HEAD.size + 4 * count
        allowed = max_kept(self.sparsity, layout.blocks(self.scope))
        if count > allowed or len(data) < start:
            raise DecodeError(f"k = {count}, the sparsity allows {allowed}, or the bytes end early")
        rest = memoryview(data)
        values = read_floats(rest[HEAD.size : start])
        as_bits = values.view(np.int32)  # denormals count, whatever the processor's settings
        if ((as_bits == 0) | (as_bits == ~MAGNITUDE_BITS)).any():
            raise DecodeError("a value is zero")
        positions, _ = golomb.decode(rest[start:], b, count, size)
        return sparse_or_dense(size, positions, values)

    def error_bound(self, size: int) -> float:
        """Return 1 - p: the entries that are kept have at least the share p of the squared norm."""
        return 1 - self.sparsity

    def expected_bits(self, layout: Layout) -> float:
        """Return n p positions with a float32 each."""
        return layout.size * self.sparsity * (golomb.position_bits(self.sparsity) + BITS)
