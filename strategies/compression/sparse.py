"""Sparse updates with their values: positions and a float32 each (top-k sparsification).

Layout of the bytes (little endian): b, 1 byte; k, 4 bytes; k float32 values; then the Golomb code
of the k positions (`golomb`), zeros to a whole byte.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from strategies.compression import golomb
from strategies.compression.bits import check_end, pack, unpack
from strategies.compression.topk import MAGNITUDE, top_k_of_blocks
from strategies.compression.update import CodecError, Positions, Vector

HEAD = struct.Struct("<BI")


@dataclass(frozen=True, eq=False)
class Sparse:
    """An update with few entries that are not zero.

    Attributes:
        size: Number of entries of the vector it changes.
        positions: Where it is not zero, int64 (k,), sorted.
        values: The entries there, float32 (k,), finite and not zero.
    """

    size: int
    positions: Positions
    values: NDArray[np.float32]

    def to_dense(self) -> Vector:
        """Return the change as a new float32 vector."""
        vector = np.zeros(self.size, np.float32)
        vector[self.positions] = self.values
        return vector

    def add_to(self, total: NDArray[np.float64], weight: float) -> None:
        """Add ``weight`` times the change to ``total``, in place."""
        total[self.positions] += weight * self.values.astype(np.float64)

    def largest(self) -> float:
        """Return the largest magnitude of an entry, 0 where there is none."""
        return float(np.abs(self.values).max(initial=0.0))

    def encode(self) -> bytes:
        """Return the bytes that this module's docstring describes."""
        b = golomb.parameter(len(self.positions) / max(self.size, 1))
        bits = pack(golomb.encode_positions(self.positions, b))
        return HEAD.pack(b, len(self.positions)) + self.values.astype("<f4").tobytes() + bits

    @classmethod
    def decode(cls, data: bytes, size: int, most: int | None = None) -> "Sparse":
        """Return the update of a vector of ``size`` entries, at most ``most`` of them not 0.

        Raises:
            CodecError: The bytes are not the code of such an update.
        """
        if len(data) < HEAD.size:
            raise CodecError(f"{len(data)} bytes, the head alone takes {HEAD.size}")
        b, count = HEAD.unpack_from(data)
        start = HEAD.size + 4 * count
        if (
            b > golomb.MAX_PARAMETER
            or count > (size if most is None else most)
            or len(data) < start
        ):
            raise CodecError(f"b = {b} and k = {count} do not fit {size} entries or the bytes")
        values = np.frombuffer(data[HEAD.size : start], "<f4").astype(np.float32)
        if not (np.isfinite(values).all() and (values.view(np.int32) & MAGNITUDE).all()):
            raise CodecError("a value is zero, NaN or infinite")
        bits = unpack(data[start:], golomb.most_bits(count, b, size))
        positions, used = golomb.decode_positions(bits, count, b, size)
        check_end(bits, used)
        return cls(size, positions, values)


def sparsify(values: Vector, sparsity: float, blocks: Sequence[int]) -> Sparse:
    """Return the k largest entries of each block as they are.

    Args:
        values: float32 (n,), finite.
        sparsity: p, the share of each block that is kept, at least one entry.
        blocks: The blocks' sizes, which sum to n.
    """
    kept = top_k_of_blocks(values, sparsity, blocks)
    positions = np.concatenate(kept) if kept else np.empty(0, np.int64)
    return Sparse(len(values), positions, values[positions])
