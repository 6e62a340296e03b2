"""Entries at positions that all clients of a round can share, as small integers of one scale.

The positions are those of a random mask (`random_entries`), the values are rounded at random to
one of 2^bits - 1 levels from -c to c. The same seed and c for all clients give numbers that can be
added entry by entry, as secure sums need them (`strategies.secure_sum`).
"""

import struct
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from pydantic.dataclasses import dataclass

from ..registry import Share
from .bit_packing import from_bits, packed_size, to_bits
from .compressor import Compressor
from .decoded_update import DecodeError, Positions, Update, Vector, sparse_or_dense
from .random_entries import mask_size, random_positions
from .vector_layout import Layout

NumberBits = Annotated[int, Field(ge=4, le=16)]
Numbers = NDArray[np.int64]
# The seed and c.
HEAD = struct.Struct("<Qf")
# c in root mean squares of the values, where it is not given.
RANGE = 4.0
# Neither a step nor a sum of values of this size leaves the range of float32.
MIN_SCALE, MAX_SCALE = 2.0**-60, 2.0**64


@dataclass(frozen=True)
class SharedEntries(Compressor):
    """Sends k = max(p n, 1) entries, p n rounded, as numbers of ``bits`` bits.

    Values beyond c are clipped; all others have the mean of what is sent. An entry of zero is sent
    as zero.

    Args:
        sparsity: p, the share of the entries that is sent.
        bits: Of a number, from 4 to 16.
        seed: Of the positions, below 2^64; 0 to draw one for each update.
        scale: c; 0 for four root mean squares of each update's values.
    """

    sparsity: Share = 1 / 4
    bits: NumberBits = 4
    seed: int = 0
    scale: float = 0.0

    @property
    def zero(self) -> int:
        """The number that stands for zero; twice this number stands for c."""
        return (1 << (self.bits - 1)) - 1

    def count(self, size: int) -> int:
        """Return k for a vector of ``size`` entries."""
        return mask_size(size, self.sparsity)

    def positions(self, seed: int, size: int) -> Positions:
        """Return the k rising positions of a seed."""
        return random_positions(seed, size, self.count(size))

    def encode(self, vector: Vector, layout: Layout, rng: np.random.Generator) -> bytes:
        """Return the update's bytes."""
        seed = self.seed or int(rng.integers(1, 2**64, dtype=np.uint64))
        values = vector[self.positions(seed, len(vector))].astype(np.float64)
        scale = bounded(self.scale or RANGE * root_mean_square(values))
        exact = np.clip(values / scale, -1, 1) * self.zero + self.zero
        below = np.floor(exact)
        numbers = below.astype(np.int64) + (rng.random(len(exact)) < exact - below)
        return HEAD.pack(seed, scale) + pack(numbers, self.bits)

    def numbers(self, data: bytes, size: int) -> Numbers:
        """Return the k numbers of an update's bytes, int64, from 0 to 2 `zero`.

        Raises:
            DecodeError: Another number of bytes, or a number is larger.
        """
        numbers = unpack(data[HEAD.size :], self.count(size), self.bits)
        if (numbers > 2 * self.zero).any():
            raise DecodeError(f"a number is above {2 * self.zero}")
        return numbers

    def decode(self, data: bytes, layout: Layout) -> Update:
        """Return the update; DecodeError if the bytes are not one of this layout."""
        if len(data) < HEAD.size:
            raise DecodeError(f"{len(data)} bytes, the head alone takes {HEAD.size}")
        seed, scale = HEAD.unpack_from(data)
        if not MIN_SCALE <= scale <= MAX_SCALE:
            raise DecodeError(f"the scale {scale} is not from 2^-60 to 2^64")
        return self.update_of(self.numbers(data, layout.size), 1, seed, scale, layout)

    def update_of(
        self, total: Numbers, clients: int, seed: int, scale: float, layout: Layout
    ) -> Update:
        """Return the mean update of clients whose numbers have this sum, int64 (k,)."""
        values = ((total / clients - self.zero) * (scale / self.zero)).astype(np.float32)
        positions, kept = self.positions(seed, layout.size), values != 0
        return sparse_or_dense(layout.size, positions[kept], values[kept])

    def expected_bits(self, layout: Layout) -> float:
        """Return ``bits`` for each of the k entries, the seed's and the scale's."""
        return float(self.bits * self.count(layout.size) + 8 * HEAD.size)


def root_mean_square(values: NDArray[Any]) -> float:
    """Return the root mean square; 0 of no values."""
    return float(np.sqrt(np.mean(np.square(values, dtype=np.float64)))) if len(values) else 0.0


def bounded(scale: float) -> float:
    """Return a scale as it can be sent: in its range, a value of float32."""
    return float(np.float32(min(max(scale, MIN_SCALE), MAX_SCALE)))


def pack(numbers: NDArray[Any], width: int) -> bytes:
    """Return numbers from 0 below 2^width as bytes, ``width`` bits each, up to 32."""
    return np.packbits(to_bits(numbers, width)).tobytes()


def unpack(data: bytes, count: int, width: int) -> Numbers:
    """Return the numbers that `pack` wrote; DecodeError for another length or padding."""
    if len(data) != packed_size(count, width):
        raise DecodeError(f"{len(data)} bytes, not {packed_size(count, width)} for {count} numbers")
    bits = np.unpackbits(np.frombuffer(data, np.uint8)).view(np.bool_)
    if bits[count * width :].any():
        raise DecodeError("bits after the last number are not zero")
    return from_bits(bits[: count * width], width, np.int64)
