"""Stochastic uniform quantisation (QSGD).

D. Alistarh, D. Grubic, J. Li, R. Tomioka, M. Vojnovic: QSGD: Communication-Efficient SGD via
Gradient Quantization and Encoding. NeurIPS 2017, arXiv 1610.02132. Each bucket of d entries has a
norm N; an entry becomes sign(v) N l / s, where l is one of the two whole numbers beside s |v| / N,
drawn so that the mean is v (section 3.1; buckets: section 3.3).

Bytes (little endian): the norms, float32 each; b, 1 byte; z, 4 bytes; then bits. b = 255: ``bits``
bits an entry, the sign (1 is negative) before the level. Otherwise the entries that are not zero:
the Golomb code of their z positions (`golomb`), their signs, their levels less 1. Zero padding.
"""

import math
import struct
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from strategies.compression import golomb
from strategies.compression.bit_packing import check_end, from_bits, pack, to_bits, unpack
from strategies.compression.compressor import Compressor
from strategies.compression.decoded_update import DecodeError, DenseUpdate, Vector
from strategies.compression.vector_layout import Layout

HEAD = struct.Struct("<BI")
ALL_ENTRIES = 255  # in the place of b
NORMS = ("l2", "max")
NORM_BITS = 32
FLOAT32_MAX = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Quantized(Compressor):
    """Sends every entry as a sign and one of 2^(bits - 1) levels of its bucket's norm.

    Args:
        bits: Of an entry, from 2 to 8; s = 2^(bits - 1) - 1 levels beside zero.
        bucket: d, the entries that share a norm.
        norm: "l2", the paper's, for which E||Q(v) - v||^2 <= min(d / s^2, sqrt(d) / s) ||v||^2; or
            "max", the largest magnitude, which loses less where s is small.

    Raises:
        ValueError: An argument is out of its range.
    """

    bits: int = 4
    bucket: int = 512
    norm: str = "l2"

    def __post_init__(self) -> None:
        if self.bits not in range(2, 9):
            raise ValueError(f"bits = {self.bits!r}: give a whole number from 2 to 8")
        if isinstance(self.bucket, bool) or not isinstance(self.bucket, int) or self.bucket < 1:
            raise ValueError(f"bucket = {self.bucket!r}: give a number of entries, at least 1")
        if self.norm not in NORMS:
            raise ValueError(f"norm = {self.norm!r}: give {' or '.join(map(repr, NORMS))}")

    @property
    def levels(self) -> int:
        """The largest level, s."""
        return (1 << (self.bits - 1)) - 1

    def encode(self, vector: Vector, layout: Layout, rng: np.random.Generator) -> bytes:
        """Return the bytes that the module's docstring describes."""
        del layout
        norms = self._norms(vector)
        of_entry = np.repeat(norms.astype(np.float64), self.bucket)[: len(vector)]
        scaled = np.abs(vector, dtype=np.float64) * self.levels
        scaled = np.divide(scaled, of_entry, out=np.zeros_like(scaled), where=of_entry > 0)
        level = np.floor(scaled + rng.random(len(vector))).clip(0, self.levels).astype(np.uint8)
        negative = (vector < 0).astype(np.uint8)
        kept = np.flatnonzero(level)
        b = golomb.parameter(len(kept) / max(len(vector), 1))
        sparse = [
            golomb.encode_positions(kept, b),
            negative[kept],
            to_bits(level[kept] - 1, self.bits - 1),
        ]
        if sum(map(len, sparse)) < self.bits * len(vector):
            return norms.astype("<f4").tobytes() + HEAD.pack(b, len(kept)) + pack(*sparse)
        codes = to_bits(negative << (self.bits - 1) | level, self.bits)
        return norms.astype("<f4").tobytes() + HEAD.pack(ALL_ENTRIES, 0) + pack(codes)

    def decode(self, data: bytes, layout: Layout) -> DenseUpdate:
        """Return the update.

        Raises:
            DecodeError: The bytes are not such an update for this layout.
        """
        size = layout.size
        start = 4 * self._num_buckets(size)
        if len(data) < start + HEAD.size:
            raise DecodeError(f"{len(data)} bytes, norms and head alone take {start + HEAD.size}")
        norms = np.frombuffer(data[:start], "<f4").astype(np.float32)
        if not (np.isfinite(norms).all() and (norms >= 0).all()):
            raise DecodeError("a norm is negative, NaN or infinite")
        b, count = HEAD.unpack_from(data, start)
        rest = data[start + HEAD.size :]
        if b == ALL_ENTRIES:
            signed = self._all_entries(rest, count, size)
        else:
            signed = self._entries_but_zero(rest, b, count, size)
        of_entry = np.repeat(norms.astype(np.float64), self.bucket)[:size]
        with np.errstate(under="ignore"):
            return DenseUpdate((signed * of_entry / self.levels).astype(np.float32))

    def error_bound(self, size: int) -> float:
        """Return min(d / (4 s^2), sqrt(d) / s).

        An entry's variance is at most (N / s)^2 / 4, and at most |v_i| N / s (lemma 3.1), and N is
        at most the bucket's L2 norm.
        """
        d = min(self.bucket, max(size, 1))
        return min(d / (4 * self.levels**2), math.sqrt(d) / self.levels)

    def contraction_fix(self) -> str:
        """Return the fewest bits that make it a contraction."""
        enough = (bits for bits in range(2, 9) if replace(self, bits=bits).error_bound(2**30) < 1)
        bits = next(enough, None)
        return f"bucket = {self.levels**2}" if bits is None else f"bits = {bits}"

    def expected_bits(self, size: int) -> float:
        """Return the bits for entries of a normal distribution, with the cheaper of the two codes.

        With the norm "l2" the share of entries that are not zero is E[min(r |z|, 1)] for
        r = s / sqrt(d) and a standard normal z; the norm "max" is taken to be sqrt(2 ln d).
        """
        norms = NORM_BITS * self._num_buckets(size)
        d = min(max(self.bucket, 2), max(size, 2))
        r = self.levels / (math.sqrt(d) if self.norm == "l2" else math.sqrt(2 * math.log(d)))
        density = math.exp(-1 / (2 * r * r)) / math.sqrt(2 * math.pi)
        share = 2 * r * (1 / math.sqrt(2 * math.pi) - density) + math.erfc(1 / r / math.sqrt(2))
        sparse = share * (golomb.position_bits(min(share, 0.99)) + self.bits)
        return size * min(float(self.bits), sparse) + norms

    def _all_entries(self, data: bytes, count: int, size: int) -> NDArray[np.int64]:
        bits = unpack(data, self.bits * size)
        check_end(bits, self.bits * size)
        if count:
            raise DecodeError(f"z = {count} where all entries are sent")
        codes = from_bits(bits, size, self.bits)
        level = codes & self.levels
        return np.where(codes >> (self.bits - 1), -level, level)

    def _entries_but_zero(self, data: bytes, b: int, count: int, size: int) -> NDArray[np.int64]:
        if b > golomb.MAX_PARAMETER or count > size:
            raise DecodeError(f"b = {b} and z = {count} do not fit a vector of {size} entries")
        bits = unpack(data, golomb.max_bits(count, b, size) + self.bits * count)
        positions, used = golomb.decode_positions(bits, count, b, size)
        check_end(bits, used + self.bits * count)
        level = 1 + from_bits(bits[used + count :], count, self.bits - 1)
        if (level > self.levels).any():
            raise DecodeError(f"a level is beyond {self.levels}")
        signed = np.zeros(size, np.int64)
        signed[positions] = np.where(bits[used : used + count], -level, level)
        return signed

    def _norms(self, vector: Vector) -> Vector:
        padded = np.zeros(self._num_buckets(len(vector)) * self.bucket)
        padded[: len(vector)] = vector
        rows = padded.reshape(-1, self.bucket)
        norms = np.abs(rows).max(axis=1) if self.norm == "max" else np.linalg.norm(rows, axis=1)
        # Rounded up, so that no entry is larger than its norm.
        with np.errstate(under="ignore"):
            rounded = np.minimum(norms, FLOAT32_MAX).astype(np.float32)
            above = np.nextafter(rounded, np.float32(FLOAT32_MAX))
        found: Vector = np.where(rounded < norms, above, rounded)
        return found

    def _num_buckets(self, size: int) -> int:
        return -(-size // self.bucket)
