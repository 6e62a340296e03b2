"""No compression: every entry as a little-endian float32."""

from dataclasses import dataclass

import numpy as np

from .compressor import Compressor
from .decoded_update import DecodeError, DenseUpdate, Vector, read_floats
from .vector_layout import Layout

BITS = 32


@dataclass(frozen=True)
class Float32(Compressor):
    """Sends updates uncompressed, 4 bytes an entry."""

    def encode(self, vector: Vector, layout: Layout, rng: np.random.Generator) -> bytes:
        """Return 4 bytes an entry."""
        return vector.astype("<f4", copy=False).tobytes()

    def decode(self, data: bytes, layout: Layout) -> DenseUpdate:
        """Return the update; DecodeError for another length, or a value that is NaN or infinite."""
        if len(data) != 4 * layout.size:
            raise DecodeError(f"{len(data)} bytes, not 4 for each of {layout.size} entries")
        return DenseUpdate(read_floats(data))

    def error_bound(self, size: int) -> float:
        """Return 0."""
        return 0.0

    def expected_bits(self, layout: Layout) -> float:
        """Return 32 bits an entry."""
        return float(BITS * layout.size)
