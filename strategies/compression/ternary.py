"""Sparse ternary updates: positions, signs, and one magnitude per block (STC's messages).

Sattler et al. 2020, arXiv 1903.02891, Algorithm 1. Layout of the bytes (integers and floats little
endian): b, 1 byte; k, 4 bytes; one float32 magnitude per block; then bits: the Golomb code of the k
positions (`golomb`), k signs (1 is negative), zeros to a whole byte.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from strategies.compression import golomb
from strategies.compression.bits import check_end, pack, unpack
from strategies.compression.topk import top_k_of_blocks
from strategies.compression.update import CodecError, Positions, Vector

HEAD = struct.Struct("<BI")


@dataclass(frozen=True, eq=False)
class Ternary:
    """An update with entries in {-mu, 0, +mu}, mu one number per block.

    Attributes:
        blocks: The blocks' sizes; they sum to the vector's.
        positions: Where it is not zero, int64 (k,), sorted.
        negative: Where it is negative there, bool (k,).
        magnitudes: mu of every block, float32, 0 for a block without entries.
    """

    blocks: tuple[int, ...]
    positions: Positions
    negative: NDArray[np.bool_]
    magnitudes: NDArray[np.float32]

    @property
    def size(self) -> int:
        """Number of entries of the vector it changes."""
        return sum(self.blocks)

    def values(self) -> NDArray[np.float32]:
        """Return the entries at ``positions``, float32 (k,)."""
        magnitudes = np.repeat(self.magnitudes, _counts(self.positions, self.blocks))
        return np.where(self.negative, -magnitudes, magnitudes)

    def to_dense(self) -> Vector:
        """Return the change as a new float32 vector."""
        vector = np.zeros(self.size, np.float32)
        vector[self.positions] = self.values()
        return vector

    def add_to(self, total: NDArray[np.float64], weight: float) -> None:
        """Add ``weight`` times the change to ``total``, in place."""
        total[self.positions] += weight * self.values().astype(np.float64)

    def largest(self) -> float:
        """Return the largest magnitude of an entry, 0 where there is none."""
        return float(self.magnitudes.max(initial=0.0))

    def encode(self) -> bytes:
        """Return the bytes that this module's docstring describes."""
        b = golomb.parameter(len(self.positions) / max(self.size, 1))
        positions = golomb.encode_positions(self.positions, b)
        bits = pack(positions, self.negative.astype(np.uint8))
        return HEAD.pack(b, len(self.positions)) + self.magnitudes.astype("<f4").tobytes() + bits

    @classmethod
    def decode(cls, data: bytes, blocks: Sequence[int], most: int | None = None) -> "Ternary":
        """Return the update that the bytes encode.

        Args:
            data: Bytes from anywhere.
            blocks: The sizes of the blocks that the update must have.
            most: The most entries that it may have; None for no limit.

        Raises:
            CodecError: The bytes are not the code of such an update.
        """
        size = sum(blocks)
        start = HEAD.size + 4 * len(blocks)
        if len(data) < start:
            raise CodecError(f"{len(data)} bytes, the head alone takes {start}")
        b, count = HEAD.unpack_from(data)
        if b > golomb.MAX_PARAMETER or count > (size if most is None else most):
            raise CodecError(f"b = {b} and k = {count} do not fit a vector of {size} entries")
        magnitudes = np.frombuffer(data[HEAD.size : start], "<f4").astype(np.float32)
        bits = unpack(data[start:], golomb.most_bits(count, b, size) + count)
        positions, used = golomb.decode_positions(bits, count, b, size)
        check_end(bits, used + count)
        counts = _counts(positions, blocks)
        as_bits = magnitudes.view(np.int32)  # a denormal counts, whatever the processor's settings
        fitting = np.where(counts > 0, as_bits > 0, as_bits == 0)
        if not (np.isfinite(magnitudes).all() and fitting.all()):
            raise CodecError("a magnitude is not a positive number, or stands for no entry")
        negative = bits[used : used + count].astype(np.bool_)
        return cls(tuple(blocks), positions, negative, magnitudes)


def ternarise(values: Vector, sparsity: float, blocks: Sequence[int]) -> Ternary:
    """Return STC of the vector: of each block its k largest entries, at their mean magnitude.

    mu is the mean over the entries really kept: where a block has fewer than k that are not zero,
    the paper's formula would divide by k all the same, and the authors' code would set the zeros
    to -mu.

    Args:
        values: float32 (n,), finite.
        sparsity: p, the share of each block that is kept, at least one entry.
        blocks: The blocks' sizes, which sum to n.
    """
    kept = top_k_of_blocks(values, sparsity, blocks)
    positions = np.concatenate(kept) if kept else np.empty(0, np.int64)
    magnitudes = [
        np.abs(values[chosen]).mean(dtype=np.float64) if len(chosen) else 0.0 for chosen in kept
    ]
    return Ternary(
        tuple(blocks), positions, values[positions] < 0, np.array(magnitudes, np.float32)
    )


def _counts(positions: Positions, blocks: Sequence[int]) -> NDArray[np.int64]:
    """Return how many of the sorted positions lie in each block."""
    bounds = np.concatenate([[0], np.cumsum(blocks)])
    return np.diff(np.searchsorted(positions, bounds)).astype(np.int64)
