"""Matrices as the product of two thin matrices.

This is PowerSGD's compression (T. Vogels, S. P. Karimireddy, M. Jaggi, NeurIPS 2019, arXiv
1905.13727, algorithm 1) of one client's update, not PowerSGD itself: that averages P over the
workers before any computes Q, which takes two exchanges a round, and feeds back the error against
the common mean. Here each client's update is factored alone.

An array of two or more dimensions is a matrix M of its first dimension n by all the others m. It is
sent as P (n x r) and Q (m x r), and decodes to P Q^T, if that takes fewer numbers: r (n + m) < n m.
Every other array is sent unchanged.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from pydantic.dataclasses import dataclass

from ..registry import Count
from .compressor import Compressor
from .decoded_update import DecodeError, DenseUpdate, Vector, read_floats
from .floats import BITS
from .vector_layout import Layout

Matrix = NDArray[np.float64]

# Below float32's largest number by more than the rounding of P, Q and the sums of their products.
LARGEST = float(np.finfo(np.float32).max) * 0.999
# A column that is shorter than this share of its original length, after subtracting the columns
# before it, is rounding errors: the matrix has a lower rank.
DEPENDENT = 1e-12


@dataclass(frozen=True)
class LowRank(Compressor):
    """Sends an approximation of each matrix by its largest r singular values.

    A compressor keeps no state, so each update starts from a new Gaussian Q, while the paper keeps
    the Q of the previous step. P P^T M is a projection, so that the error is at most the update's
    norm. The update is biased; it is meant to be used with error feedback.

    Args:
        rank: r.
        iterations: Of the power method, each of which multiplies by M and by its transpose.
    """

    rank: Count = 2
    iterations: Count = 1

    def encode(self, vector: Vector, layout: Layout, rng: np.random.Generator) -> bytes:
        """Return the update's bytes."""
        parts = []
        arrays = zip(self._matrices(layout), layout.split(vector), strict=True)
        for (rows, columns, sent), part in arrays:
            if sent == rows * columns:
                parts.append(part.astype("<f4").tobytes())
                continue
            first = rng.standard_normal((columns, self.rank))
            matrix = part.reshape(rows, columns).astype(np.float64)
            parts += [factor.tobytes() for factor in factors(matrix, first, self.iterations)]
        return b"".join(parts)

    def decode(self, data: bytes, layout: Layout) -> DenseUpdate:
        """Return the update, the same bits on every machine.

        The r products of a column of P and one of Q are added entry by entry, in order and in
        float32. A matrix product of BLAS may add them in another order.

        DecodeError for another length, or a value that is NaN or infinite, as sent or as product.
        """
        if 8 * len(data) != self.expected_bits(layout):
            raise DecodeError(f"{len(data)} bytes do not fit the layout and rank {self.rank}")
        numbers = read_floats(data)
        parts = [np.empty(0, np.float32)]
        for rows, columns, sent in self._matrices(layout):
            part, numbers = numbers[:sent], numbers[sent:]
            if sent < rows * columns:
                left = part[: rows * self.rank].reshape(rows, self.rank)
                right = part[rows * self.rank :].reshape(columns, self.rank)
                with np.errstate(over="ignore", invalid="ignore"):
                    product = np.multiply.outer(left[:, 0], right[:, 0])
                    for column in range(1, self.rank):
                        product += np.multiply.outer(left[:, column], right[:, column])
                part = product.reshape(-1)
            parts.append(part)
        values = np.concatenate(parts)
        if not np.isfinite(values).all():
            raise DecodeError("a product of the factors is NaN or infinite")
        return DenseUpdate(values)

    def expected_bits(self, layout: Layout) -> float:
        """Return 32 bits for each number that is sent, of the factors or of other arrays."""
        return float(BITS * sum(sent for _, _, sent in self._matrices(layout)))

    def _matrices(self, layout: Layout) -> Iterator[tuple[int, int, int]]:
        """Yield (n, m, the numbers that are sent, fewer if they are factors) of each array."""
        for shape, size in zip(layout.shapes, layout.sizes, strict=True):
            rows = shape[0] if len(shape) > 1 else size
            columns = size // max(rows, 1)
            yield rows, columns, min(self.rank * (rows + columns), size)


def factors(matrix: Matrix, right: Matrix, iterations: int) -> tuple[Vector, Vector]:
    """Return (P, Q) after this many power iterations: P with orthonormal columns, Q = M^T P.

    They are little-endian float32 (n, r) and (m, r), whose product no entry of float32 overflows.
    Where M, float64 (n, m), has a lower rank than the Q to start from, float64 (m, r), has columns,
    the columns that are left over are zero.
    """
    left = np.empty((len(matrix), right.shape[1]))
    for _ in range(iterations):
        left = orthonormal(_times("nm,m->n", matrix, right))
        right = _times("nm,n->m", matrix, left)
    # Only where entries come near float32's largest number: Q's are up to sqrt(n) times as large,
    # and the product's are at most the norm of a row of Q.
    norms = np.sqrt(np.einsum("mr,mr->m", right, right))
    right *= min(1.0, LARGEST / max(float(norms.max()), 1.0))
    return left.astype("<f4"), right.astype("<f4")


def _times(form: str, matrix: Matrix, columns: Matrix) -> Matrix:
    """Return the matrix or its transpose times each column, without BLAS.

    Sums of BLAS depend on the number of its threads, which differs between engines.
    """
    return np.stack([np.einsum(form, matrix, column) for column in columns.T.copy()], axis=1)


def orthonormal(columns: Matrix) -> Matrix:
    """Return the columns made orthonormal in turn (Gram-Schmidt), or zero where they depend."""
    made = np.zeros_like(columns)
    for place in range(columns.shape[1]):
        column = columns[:, place].copy()
        length = np.sqrt((column**2).sum())
        for _ in range(2):  # the second time for what rounding left
            for other in range(place):
                column -= (made[:, other] * column).sum() * made[:, other]
        rest = np.sqrt((column**2).sum())
        if rest > DEPENDENT * length:
            made[:, place] = column / rest
    return made
