"""Half precision: every entry as an IEEE 754 float16, little endian.

It halves the bytes of float32, and is the baseline for the other compressors.
"""

from dataclasses import dataclass

import numpy as np

from strategies.compression.compressor import Compressor
from strategies.compression.decoded_update import DecodeError, DenseUpdate, Vector
from strategies.compression.vector_layout import Layout

BITS = 16
LARGEST = float(np.finfo(np.float16).max)


@dataclass(frozen=True)
class Float16(Compressor):
    """Sends every entry with 11 significant bits, clipped to [-65,504, 65,504]."""

    def encode(self, vector: Vector, layout: Layout, rng: np.random.Generator) -> bytes:
        """Return 2 bytes an entry."""
        del layout, rng
        with np.errstate(under="ignore"):  # what is too small becomes 0
            return np.clip(vector, -LARGEST, LARGEST).astype("<f2").tobytes()

    def decode(self, data: bytes, layout: Layout) -> DenseUpdate:
        """Return the update.

        Raises:
            DecodeError: Another number of bytes, or a value that is NaN or infinite.
        """
        if len(data) != 2 * layout.size:
            raise DecodeError(f"{len(data)} bytes, not 2 for each of {layout.size} entries")
        values = np.frombuffer(data, "<f2").astype(np.float32)
        if not np.isfinite(values).all():
            raise DecodeError("a value is NaN or infinite")
        return DenseUpdate(values)

    def expected_bits(self, size: int) -> float:
        """Return 16 bits an entry."""
        return float(BITS * size)
