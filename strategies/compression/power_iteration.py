"""The power method: a matrix M as about P Q^T, P with few orthonormal columns (PowerSGD).

T. Vogels, S. P. Karimireddy, M. Jaggi 2019 (`low_rank`), algorithm 1.
"""

import numpy as np
from numpy.typing import NDArray

from strategies.compression.decoded_update import Vector

Matrix = NDArray[np.float64]

# Below float32's largest number by more than the rounding of P, Q and the sums of their products.
LARGEST = float(np.finfo(np.float32).max) * 0.999
# A column that is shorter than this share of what it was, once the ones before it are taken away,
# is rounding errors: the matrix has a lower rank.
DEPENDENT = 1e-12


def factors(matrix: Matrix, right: Matrix, iterations: int) -> tuple[Vector, Vector]:
    """Return (P, Q) after so many power iterations: P with orthonormal columns, Q = M^T P.

    Where the matrix has a lower rank than Q has columns, the columns that are left over are zero.

    Args:
        matrix: M, float64 (n, m).
        right: The Q to start from, float64 (m, r).
        iterations: At least 1.

    Returns:
        Little-endian float32 (n, r) and (m, r), whose product no entry of float32 overflows.
    """
    left = np.empty((len(matrix), right.shape[1]))
    for _ in range(iterations):
        left = orthonormal(_times("nm,m->n", matrix, right))
        right = _times("nm,n->m", matrix, left)
    # Only where entries come near float32's largest number: Q's are up to sqrt(n) times as large,
    # and the product's are at most the norm of a row of Q.
    norms = np.sqrt(np.einsum("mr,mr->m", right, right))
    right *= min(1.0, LARGEST / max(float(norms.max()), 1.0))
    with np.errstate(under="ignore"):
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
