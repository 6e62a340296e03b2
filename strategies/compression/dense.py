"""Dense updates: every entry as a little-endian float32, nothing else."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from strategies.compression.update import CodecError, Vector


@dataclass(frozen=True, eq=False)
class Dense:
    """An update as it is.

    Attributes:
        vector: float32 (n,), finite.
    """

    vector: Vector

    @property
    def size(self) -> int:
        """Number of entries of the vector it changes."""
        return len(self.vector)

    def to_dense(self) -> Vector:
        """Return the change as a new float32 vector."""
        return self.vector.copy()

    def add_to(self, total: NDArray[np.float64], weight: float) -> None:
        """Add ``weight`` times the change to ``total``, in place."""
        total += weight * self.vector.astype(np.float64)

    def largest(self) -> float:
        """Return the largest magnitude of an entry, 0 where there is none."""
        return float(np.abs(self.vector).max(initial=0.0))

    def encode(self) -> bytes:
        """Return 4 bytes an entry."""
        return self.vector.astype("<f4").tobytes()

    @classmethod
    def decode(cls, data: bytes, size: int) -> "Dense":
        """Return the update of a vector of ``size`` entries that the bytes encode.

        Raises:
            CodecError: Another number of bytes, or a value that is NaN or infinite.
        """
        if len(data) != 4 * size:
            raise CodecError(f"{len(data)} bytes, not 4 for each of {size} entries")
        vector = np.frombuffer(data, "<f4").astype(np.float32)
        if not np.isfinite(vector).all():
            raise CodecError("a value is NaN or infinite")
        return cls(vector)
