"""Stochastic uniform quantisation (QSGD).

D. Alistarh, D. Grubic, J. Li, R. Tomioka, M. Vojnovic: QSGD: Communication-Efficient SGD via
Gradient Quantization and Encoding. NeurIPS 2017, arXiv 1610.02132. Each bucket of d entries has a
norm N; an entry v becomes l N / s, where l is one of the two whole numbers beside s v / N, drawn so
that the mean is v (section 3.1; buckets: section 3.3).

Bytes (little endian): the norms, float32 each; then l + s of every entry, in ``bits`` bits or the
code of `mostly_zero`.
"""

import math
from dataclasses import dataclass, field, replace

import numpy as np

from strategies.compression import buckets, mostly_zero
from strategies.compression.compressor import Compressor
from strategies.compression.decoded_update import DecodeError, DenseUpdate, Vector
from strategies.compression.vector_layout import Layout
from strategies.compression.whole_numbers import check_whole

NORM_BITS = 32


@dataclass(frozen=True)
class Quantized(Compressor):
    """Sends every entry as one of 2^bits - 1 multiples of its bucket's norm, from -N to N.

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
    levels: int = field(init=False, repr=False, compare=False)  # s

    def __post_init__(self) -> None:
        check_whole("bits", self.bits, 2, 8)
        check_whole("bucket", self.bucket, 1)
        if self.norm not in buckets.NORMS:
            raise ValueError(f"norm = {self.norm!r}: give {' or '.join(map(repr, buckets.NORMS))}")
        object.__setattr__(self, "levels", (1 << (self.bits - 1)) - 1)

    def encode(self, vector: Vector, layout: Layout, rng: np.random.Generator) -> bytes:
        """Return the bytes that the module's docstring describes."""
        norms, numbers = [np.empty(0, np.float32)], [np.empty(0, np.uint8)]
        for rows in buckets.chunks_of(vector, self.bucket):
            norms.append(buckets.norms_of(rows, self.norm))
            with np.errstate(under="ignore"):
                rows /= np.where(norms[-1] > 0, norms[-1], 1)[:, None]
                rows *= self.levels
            below = np.floor(rows)
            number = (below + self.levels).astype(np.uint8)
            number += (rng.random(rows.shape, np.float32) < rows - below).view(np.uint8)
            numbers.append(number.reshape(-1))
        entries = np.concatenate(numbers)[: len(vector)]
        code = mostly_zero.encode(entries, self.levels, self.bits)
        return np.concatenate(norms).astype("<f4").tobytes() + code

    def decode(self, data: bytes, layout: Layout) -> DenseUpdate:
        """Return the update.

        Raises:
            DecodeError: The bytes are not such an update for this layout.
        """
        norms, code = buckets.read_norms(data, layout.size, self.bucket)
        numbers = mostly_zero.decode(code, layout.size, self.levels, self.bits)
        if (numbers > 2 * self.levels).any():
            raise DecodeError(f"a level is beyond {self.levels}")
        rows = buckets.rows_of(numbers, self.bucket)
        with np.errstate(under="ignore"):
            rows -= self.levels
            rows /= self.levels
            rows *= norms[:, None]
        return DenseUpdate(rows.reshape(-1)[: layout.size])

    def error_bound(self, size: int) -> float:
        """Return min(d / (4 s^2), sqrt(d) / s).

        An entry's variance is at most (N / s)^2 / 4, and at most |v_i| N / s (lemma 3.1), and N is
        at most the bucket's L2 norm.
        """
        d = min(self.bucket, max(size, 1))
        return min(d / (4 * self.levels**2), math.sqrt(d) / self.levels)

    def contraction_fix(self) -> str:
        """Return the fewest bits that make it a contraction."""
        for bits in range(2, 9):
            if replace(self, bits=bits).error_bound(self.bucket) < 1:
                return f"bits = {bits}"
        return f"bucket = {self.levels**2}"

    def expected_bits(self, layout: Layout) -> float:
        """Return the bits for entries of a normal distribution, with the cheaper of the two codes.

        An entry is not zero with the probability min(s |v| / N, 1), whose mean is at most that of
        s |v| / N: s sqrt(2 / pi) / sqrt(d) with the norm "l2", for "max" with sqrt(2 ln d).
        """
        size, d = layout.size, min(self.bucket, max(layout.size, 2))
        norm = math.sqrt(d) if self.norm == "l2" else math.sqrt(2 * math.log(max(d, 2)))
        share = min(self.levels * math.sqrt(2 / math.pi) / norm, 1)
        norms = NORM_BITS * buckets.number_of(size, self.bucket)
        return norms + size * mostly_zero.expected_bits(share, self.bits)
