"""Sign updates: a step of one fixed size up, down or not at all, for every entry (signSGD).

J. Bernstein et al.: signSGD, ICML 2018, arXiv 1802.04434. One bit an entry, and what the paper's
count leaves out: a sign may be 0 (no gradient, a tied vote), so the positions of the zeros are sent
too. Layout of the bytes (little endian): the step, a float32; b, 1 byte; z, 4 bytes; then bits: the
Golomb code of the z positions that are zero (`golomb`), the signs of the others (1 is negative),
zeros to a whole byte.
"""

import math
import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from strategies.compression import golomb
from strategies.compression.bits import check_end, pack, unpack
from strategies.compression.update import CodecError, Vector

HEAD = struct.Struct("<fBI")


@dataclass(frozen=True, eq=False)
class Signs:
    """An update of ``step`` times -1, 0 or 1 for every entry.

    Attributes:
        step: The size of the step, a positive number that float32 holds.
        signs: int8 (n,), each -1, 0 or 1.
    """

    step: float
    signs: NDArray[np.int8]

    @property
    def size(self) -> int:
        """Number of entries of the vector it changes."""
        return len(self.signs)

    def to_dense(self) -> Vector:
        """Return the change as a new float32 vector."""
        return self.signs.astype(np.float32) * np.float32(self.step)

    def add_to(self, total: NDArray[np.float64], weight: float) -> None:
        """Add ``weight`` times the change to ``total``, in place."""
        total += (weight * float(np.float32(self.step))) * self.signs

    def largest(self) -> float:
        """Return the largest magnitude of an entry, 0 where there is none."""
        return self.step if self.signs.any() else 0.0

    def encode(self) -> bytes:
        """Return the bytes that this module's docstring describes."""
        zeros = np.flatnonzero(self.signs == 0)
        b = golomb.parameter(len(zeros) / max(self.size, 1))
        negative = (self.signs[self.signs != 0] < 0).astype(np.uint8)
        bits = pack(golomb.encode_positions(zeros, b), negative)
        return HEAD.pack(self.step, b, len(zeros)) + bits

    @classmethod
    def decode(cls, data: bytes, size: int) -> "Signs":
        """Return the update of a vector of ``size`` entries that the bytes encode.

        Raises:
            CodecError: The bytes are not the code of such an update.
        """
        if len(data) < HEAD.size:
            raise CodecError(f"{len(data)} bytes, the head alone takes {HEAD.size}")
        step, b, count = HEAD.unpack_from(data)
        if not (math.isfinite(step) and step > 0):
            raise CodecError(f"the step is {step}, not a positive number")
        if b > golomb.MAX_PARAMETER or count > size:
            raise CodecError(f"b = {b} and z = {count} do not fit a vector of {size} entries")
        bits = unpack(data[HEAD.size :], golomb.most_bits(count, b, size) + size - count)
        zeros, used = golomb.decode_positions(bits, count, b, size)
        check_end(bits, used + size - count)
        moves = np.ones(size, np.bool_)
        moves[zeros] = False
        signs = np.zeros(size, np.int8)
        signs[moves] = 1 - 2 * bits[used : used + size - count].astype(np.int8)
        return cls(step, signs)
