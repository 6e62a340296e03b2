"""A decoded update of the model's flat vector, dense or sparse, and the error of invalid bytes."""

from abc import ABC, abstractmethod
from copy import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]
Positions = NDArray[np.int64]
Bits = NDArray[np.bool_]

# Entries that are added at a time: few enough for a processor's cache.
BLOCK = 1 << 16


class DecodeError(ValueError):
    """Bytes that are not an encoded update; the message is the reason, in one line."""


def read_floats(data: bytes | memoryview) -> Vector:
    """Return the float32 numbers in the bytes; DecodeError if any is NaN or infinite."""
    values = np.frombuffer(data, "<f4").astype(np.float32)
    if not np.isfinite(values).all():
        raise DecodeError("a number is NaN or infinite")
    return values


def signs_of(negative: Bits) -> NDArray[np.int8]:
    """Return -1 where negative, else 1; they overwrite what is given."""
    signs = negative.view(np.int8)
    signs *= -2
    signs += 1
    return signs


def add_weighted(total: NDArray[Any], values: NDArray[Any], weight: float) -> None:
    """Add ``weight`` times the values, (n,), to a total of float64 or complex128, in place."""
    for start in range(0, len(total), BLOCK):
        part = slice(start, start + BLOCK)
        total[part] += np.multiply(values[part], weight, dtype=total.dtype)


class Update(ABC):
    """A change of the model's flat vector.

    Attributes:
        size: n, the number of entries of the vector that it changes.
        values: float32; all entries, or those that are not zero.
    """

    size: int
    values: Vector

    @abstractmethod
    def to_dense(self) -> Vector:
        """Return the change as a new float32 vector of ``size`` entries."""

    @abstractmethod
    def add_to(self, total: NDArray[Any], weight: float) -> None:
        """Add ``weight`` times the change to ``total``, float32 or float64 (n,), in place."""

    def added_to(self, vector: NDArray[Any]) -> NDArray[Any]:
        """Return the vector plus the change, as a new array."""
        total = vector + 0  # -0.0 becomes 0.0, as in a sum of all entries
        self.add_to(total, 1.0)
        return total

    def scaled(self, factor: float) -> "Update":
        """Return ``factor`` times the change."""
        other = copy(self)
        other.values = np.float32(factor) * self.values
        return other

    def check(self, size: int) -> None:
        """Check that this is an update of a vector of ``size`` entries.

        Decoders in other packages may return anything.

        Raises:
            DecodeError: It is not.
        """
        if self.size != size:
            raise DecodeError(f"the update has {self.size} entries, not {size}")
        if self.values.ndim != 1:
            raise DecodeError(f"the update's values have the shape {self.values.shape}")

    def max_abs(self) -> float:
        """Return the largest magnitude of an entry; 0 without entries, NaN if any is NaN."""
        most = np.maximum(self.values.max(initial=0.0), -self.values.min(initial=0.0))
        return float(np.abs(most))

    def norm(self) -> float:
        """Return the L2 norm, computed in float64."""
        return float(np.linalg.norm(self.values.astype(np.float64)))


class DenseUpdate(Update):
    """An update with a value for every entry, float32 (n,)."""

    def __init__(self, values: Vector) -> None:
        self.size, self.values = len(values), values

    def to_dense(self) -> Vector:
        """Return the change as a new float32 vector."""
        return self.values.copy()

    def add_to(self, total: NDArray[Any], weight: float) -> None:
        """Add ``weight`` times the change to ``total``, in place."""
        add_weighted(total, self.values, weight)


class SparseUpdate(Update):
    """An update with few entries that are not zero.

    Args:
        size: n.
        positions: Where it is not zero, int64 (k,), rising.
        values: The entries there, float32 (k,).
    """

    def __init__(self, size: int, positions: Positions, values: Vector) -> None:
        self.size, self.positions, self.values = size, positions, values

    def check(self, size: int) -> None:
        """Check the size, and that every value has a position within it."""
        super().check(size)
        if self.positions.shape != self.values.shape:
            raise DecodeError(f"{len(self.positions)} positions for {len(self.values)} values")
        if len(self.positions) and not 0 <= self.positions.min() <= self.positions.max() < size:
            raise DecodeError(f"a position lies beyond the vector's {size} entries")

    def to_dense(self) -> Vector:
        """Return the change as a new float32 vector."""
        vector = np.zeros(self.size, np.float32)
        vector[self.positions] = self.values
        return vector

    def add_to(self, total: NDArray[Any], weight: float) -> None:
        """Add ``weight`` times the change to ``total``, in place."""
        total[self.positions] += weight * self.values.astype(np.float64)


def sparse_or_dense(size: int, positions: Positions, values: Vector) -> Update:
    """Return the update as in `SparseUpdate`; dense, a third of its memory, if no entry is zero."""
    return DenseUpdate(values) if len(values) == size else SparseUpdate(size, positions, values)
