"""The largest entries of every chunk of the vector, in full or in two bits each.

As in SparseLoCo: A. Sarfi, B. Thérien, J. Lidin, E. Belilovsky: Communication Efficient LLM
Pre-training with SparseLoCo. 2025, arXiv 2508.15706, which keeps 64 of every 4,096 entries. Every
part of the model sends the same share, and selection needs no more memory for a larger model.

What is ours: a chunk is a stretch of the flat vector, also across arrays, while the authors' code
cuts each matrix into tiles of 64 x 64. Positions are in Golomb's code (`golomb`), 7.5 bits each for
64 of 4,096, where a number within the chunk takes 12. Two bits are a sign and one of the chunk's
two magnitudes; the authors' code (CCLoco) bins all kept values of an array by their mean and
standard deviation, and sends the means of the bins.
"""

import struct
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic.dataclasses import dataclass

from ..registry import Count, Share
from . import golomb
from .compressor import Compressor
from .decoded_update import (
    Bits,
    DecodeError,
    Positions,
    Update,
    Vector,
    read_floats,
    signs_of,
    sparse_or_dense,
)
from .floats import BITS
from .largest_entries import MAGNITUDE_BITS, keep_count, largest_of_blocks
from .vector_layout import Layout

# Of a value: two, or a float32.
ValueBits = Literal[2, 32]
HEAD = struct.Struct("<BI")
# Magnitudes of a chunk: of its smaller and of its larger kept entries.
CLASSES = 2


@dataclass(frozen=True)
class Chunked(Compressor):
    """Sends the largest entries of each chunk.

    With two bits the kept entries of a chunk whose magnitude is above their mean magnitude decode
    to the mean magnitude of these, the others to that of the others, with their signs.

    Args:
        sparsity: p, the share of each chunk's entries that is kept, at least one.
        chunk: Entries of a chunk; the last chunk has what is left.
        bits: Of a value: 2, or 32 for float32.
    """

    sparsity: Share = 1 / 64
    chunk: Count = 4096
    bits: ValueBits = 2

    def encode(self, vector: Vector, layout: Layout, rng: np.random.Generator) -> bytes:
        """Return the update's bytes."""
        blocks = self._blocks(len(vector))
        positions = largest_of_blocks(vector, self.sparsity, blocks)
        b = golomb.parameter(len(positions) / max(len(vector), 1))
        head, kept = HEAD.pack(b, len(positions)), vector[positions]
        if self.bits == BITS:
            return head + kept.astype("<f4", copy=False).tobytes() + golomb.encode(positions, b)
        chunks, magnitudes = positions // self.chunk, np.abs(kept).astype(np.float64)
        larger = magnitudes > _means(chunks, magnitudes, len(blocks))[chunks]
        means = _means(CLASSES * chunks + larger, magnitudes, CLASSES * len(blocks))
        bits = golomb.encode(positions, b, np.concatenate([kept < 0, larger]))
        return head + means.astype("<f4").tobytes() + bits

    def decode(self, data: bytes, layout: Layout) -> Update:
        """Return the update; DecodeError if invalid, or if a chunk has more entries than p says."""
        size, two = layout.size, self.bits != BITS
        if len(data) < HEAD.size:
            raise DecodeError(f"{len(data)} bytes, the head alone takes {HEAD.size}")
        b, count = HEAD.unpack_from(data)
        most = self._most(size)
        numbers = CLASSES * len(most) if two else count
        start = HEAD.size + 4 * numbers
        if count > most.sum() or len(data) < start:
            raise DecodeError(f"k = {count}, the sparsity allows {most.sum()}, or the bytes end")
        rest = memoryview(data)
        values = read_floats(rest[HEAD.size : start])
        signs = CLASSES * count if two else 0
        positions, bits = golomb.decode(rest[start:], b, count, size, signs)
        chunks = positions // self.chunk
        if (np.bincount(chunks, minlength=len(most)) > most).any():
            raise DecodeError(f"a chunk has more entries than the sparsity allows, {most[0]}")
        if two:
            values = _values(values, chunks, bits[:count], bits[count:])
        else:
            as_bits = values.view(np.int32)  # denormals count, whatever the processor's settings
            if ((as_bits == 0) | (as_bits == ~MAGNITUDE_BITS)).any():
                raise DecodeError("a value is zero")
        return sparse_or_dense(size, positions, values)

    def error_bound(self, size: int) -> float:
        """Return 1 - p, or with two bits the largest 1 - k / (k^2 + c - k) of a chunk of c entries.

        The latter is that of one magnitude (`ternary`): with two, each the mean of its entries, no
        more of the squared norm is lost.
        """
        if self.bits == BITS:
            return 1 - self.sparsity
        sizes = set(self._blocks(size)) or {1}
        kept = [(keep_count(length, self.sparsity), length) for length in sizes]
        return max(1 - k / (k * k + length - k) for k, length in kept)

    def expected_bits(self, layout: Layout) -> float:
        """Return k positions and values, and with two bits a chunk's magnitudes, two float32."""
        most = self._most(layout.size)
        count = float(most.sum())
        positions = golomb.position_bits(count / layout.size) if count else 0.0
        magnitudes = 0 if self.bits == BITS else CLASSES * BITS * len(most)
        return count * (positions + self.bits) + magnitudes

    def _blocks(self, size: int) -> list[int]:
        """Return how many entries each chunk has."""
        whole, rest = divmod(size, self.chunk)
        return [self.chunk] * whole + [rest] * (rest > 0)

    def _most(self, size: int) -> Positions:
        """Return how many entries of each chunk are kept at most."""
        kept = [keep_count(length, self.sparsity) for length in self._blocks(size)]
        return np.array(kept, np.int64)


def _means(groups: Positions, values: NDArray[np.float64], count: int) -> NDArray[Any]:
    """Return the mean of the values of each of ``count`` groups, 0 for a group without any."""
    sums, members = (np.bincount(groups, weights, count) for weights in (values, None))
    return sums / np.maximum(members, 1)


def _values(magnitudes: Vector, chunks: Positions, negative: Bits, larger: Bits) -> Vector:
    """Return the entries of two bits each; DecodeError for a magnitude that does not fit them."""
    groups = CLASSES * chunks + larger
    used = np.bincount(groups, minlength=len(magnitudes)) > 0
    as_bits = magnitudes.view(np.int32)  # denormals count, whatever the processor's settings
    if not np.where(used, as_bits > 0, as_bits == 0).all():
        raise DecodeError("a magnitude is not a positive number, or it has no entry")
    values: Vector = magnitudes[groups]
    values *= signs_of(negative)
    return values
