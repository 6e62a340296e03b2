"""Stochastic uniform quantisation (QSGD).

D. Alistarh, D. Grubic, J. Li, R. Tomioka, M. Vojnovic: QSGD: Communication-Efficient SGD via
Gradient Quantization and Encoding. NeurIPS 2017, arXiv 1610.02132. Each bucket of d entries has a
norm N; an entry v becomes l N / s, where l is one of the two whole numbers beside s v / N, drawn so
that the mean is v (section 3.1; buckets: section 3.3). The update is the l of all entries, or only
the nonzero l with their positions, whichever is likely to be shorter.
"""

import math
import struct
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from pydantic.dataclasses import dataclass

from ..registry import Count
from . import golomb
from .bit_packing import pack, packed_size, unpack
from .compressor import Compressor
from .decoded_update import DecodeError, DenseUpdate, Vector, read_floats
from .vector_layout import Layout

Bits = Annotated[int, Field(ge=2, le=8)]
Norm = Literal["l2", "max"]
NORM_BITS = 32
HEAD = struct.Struct("<BI")
ALL_ENTRIES = 255  # in the place of b
FLOAT32_MAX = np.finfo(np.float32).max

Numbers = NDArray[np.uint8]


@dataclass(frozen=True)
class Quantized(Compressor):
    """Sends every entry as one of 2^bits - 1 multiples of its bucket's norm, from -N to N.

    Args:
        bits: Bits per entry, from 2 to 8; s = 2^(bits - 1) - 1 levels beside zero.
        bucket: d, how many entries share a norm.
        norm: "l2", the paper's, for which E||Q(v) - v||^2 <= min(d / s^2, sqrt(d) / s) ||v||^2; or
            "max", the largest magnitude, which loses less where s is small.
    """

    bits: Bits = 4
    bucket: Count = 512
    norm: Norm = "l2"

    @property
    def levels(self) -> int:
        """The number of levels on either side of zero."""
        return (1 << (self.bits - 1)) - 1

    def encode(self, vector: Vector, layout: Layout, rng: np.random.Generator) -> bytes:
        """Return the update's bytes."""
        rows = self._rows(vector)
        norms = self._norms(rows)
        rows /= np.where(norms > 0, norms, 1)[:, None]
        rows *= self.levels
        below = np.floor(rows)
        number = (below + self.levels).astype(np.uint8)
        number += (rng.random(rows.shape, np.float32) < rows - below).view(np.uint8)
        sent = number.reshape(-1)[: len(vector)]
        nonzero = sent != self.levels
        share = np.count_nonzero(nonzero) / max(len(sent), 1)
        b, code = ALL_ENTRIES, b""
        if self._entry_bits(share) < self.bits:
            positions, b = np.flatnonzero(nonzero), golomb.parameter(share)
            sent, code = sent[positions], golomb.encode(positions, b)
        head = norms.astype("<f4").tobytes() + HEAD.pack(b, len(sent))
        return head + pack(sent, self.bits) + code

    def decode(self, data: bytes, layout: Layout) -> DenseUpdate:
        """Return the update; DecodeError if the bytes are not one of this layout."""
        size, start = layout.size, 4 * self._buckets(layout.size)
        if len(data) < start + HEAD.size:
            raise DecodeError(f"{len(data)} bytes, the norms and the head take {start + HEAD.size}")
        norms = read_floats(data[:start])
        if np.signbit(norms).any():
            raise DecodeError("a norm is negative")
        b, count = HEAD.unpack_from(data, start)
        if count > size or (b == ALL_ENTRIES and count != size):
            raise DecodeError(f"z = {count} of {size} entries")
        start += HEAD.size
        end = start + packed_size(count, self.bits)
        numbers = unpack(memoryview(data)[start:end], count, self.bits)
        if b != ALL_ENTRIES:
            positions, _ = golomb.decode(data[end:], b, count, size)
            sent, numbers = numbers, np.full(size, self.levels, np.uint8)
            numbers[positions] = sent
        elif len(data) != end:
            raise DecodeError(f"{len(data)} bytes, not {end}")
        if (numbers > 2 * self.levels).any():
            raise DecodeError(f"a level is beyond {self.levels}")
        rows = self._rows(numbers)
        rows -= self.levels
        rows /= self.levels
        rows *= norms[:, None]
        return DenseUpdate(rows.reshape(-1)[:size])

    def error_bound(self, size: int) -> float:
        """Return min(d / (4 s^2), sqrt(d) / s).

        An entry's variance is at most (N / s)^2 / 4, and at most |v_i| N / s (lemma 3.1), and N is
        at most the bucket's L2 norm.
        """
        d = min(self.bucket, max(size, 1))
        return min(d / (4 * self.levels**2), math.sqrt(d) / self.levels)

    def expected_bits(self, layout: Layout) -> float:
        """Return the bits for entries of a normal distribution, with the cheaper of the two codes.

        An entry is not zero with the probability min(s |v| / N, 1), whose mean is at most that of
        s |v| / N: s sqrt(2 / pi) / sqrt(d) with the norm "l2", for "max" with sqrt(2 ln d).
        """
        size, d = layout.size, min(self.bucket, max(layout.size, 2))
        norm = math.sqrt(d) if self.norm == "l2" else math.sqrt(2 * math.log(max(d, 2)))
        share = min(self.levels * math.sqrt(2 / math.pi) / norm, 1)
        return NORM_BITS * self._buckets(size) + size * self._entry_bits(share)

    def _buckets(self, size: int) -> int:
        """Return how many buckets there are; the last may have fewer entries."""
        return -(-size // self.bucket)

    def _rows(self, entries: Vector | Numbers) -> Vector:
        """Return a new row of float32 for each bucket, the last row filled with zeros."""
        width = min(self.bucket, max(len(entries), 1))
        rows = np.zeros((self._buckets(len(entries)), width), np.float32)
        rows.reshape(-1)[: len(entries)] = entries
        return rows

    def _norms(self, rows: Vector) -> Vector:
        """Return each row's norm, float32, rounded up: no entry is larger."""
        if self.norm == "max":
            largest: Vector = np.abs(rows).max(axis=1)
            return largest
        exact = np.sqrt(np.square(rows, dtype=np.float64).sum(axis=1)).clip(max=FLOAT32_MAX)
        above: Vector = np.nextafter(exact.astype(np.float32), FLOAT32_MAX)
        return above

    def _entry_bits(self, share: float) -> float:
        """Return the bits per entry if this share of them is not zero."""
        sparse = share * (golomb.position_bits(share) + self.bits) if share else 0.0
        return min(sparse, float(self.bits))
