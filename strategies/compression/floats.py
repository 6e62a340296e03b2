"""Every entry, in single or in half precision: no compression, and the baseline for the others."""

from dataclasses import dataclass

import numpy as np

from .compressor import Compressor
from .decoded_update import DecodeError, DenseUpdate, Vector, read_floats
from .vector_layout import Layout

# Bits of a float32, and of a float16 and an array's exponent.
BITS = 32
HALF_BITS, EXPONENT_BITS = 16, 8
# The exponent of the largest magnitude as `np.frexp` has it: in [2^14, 2^15).
LARGEST_EXPONENT = 15
LEAST_EXPONENT = -127  # whose power's inverse a float32 holds
# The largest float16 below 2^15.
BELOW_LARGEST = np.float32(32752)


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


@dataclass(frozen=True)
class Float16(Compressor):
    """Sends every entry as an IEEE 754 float16, little endian, with a scale for each array.

    An array's scale is a power of two that brings its largest magnitude to [2^14, 2^15), so that
    small updates keep their 11 significant bits; entries 2^29 times below the largest keep fewer.
    """

    def encode(self, vector: Vector, layout: Layout, rng: np.random.Generator) -> bytes:
        """Return the update's bytes."""
        exponents, scaled = [], vector.copy()
        for part in layout.split(scaled):
            largest = max(part.max(initial=0), -part.min(initial=0))
            exponent = int(np.frexp(largest)[1]) - LARGEST_EXPONENT if largest else 0
            exponents.append(max(exponent, LEAST_EXPONENT))
            part *= np.float32(2.0 ** -exponents[-1])
        # Rounded up to 2^15, the largest numbers would be infinite as float32.
        scaled.clip(-BELOW_LARGEST, BELOW_LARGEST, out=scaled)
        return np.array(exponents, np.int8).tobytes() + scaled.astype("<f2").tobytes()

    def decode(self, data: bytes, layout: Layout) -> DenseUpdate:
        """Return the update; DecodeError for another length, or a value that is NaN or infinite."""
        arrays = len(layout.sizes)
        if len(data) != arrays + 2 * layout.size:
            raise DecodeError(f"{len(data)} bytes, not {arrays} and 2 for each of {layout.size}")
        exponents = np.frombuffer(data[:arrays], np.int8)
        values: Vector = np.frombuffer(data[arrays:], "<f2").astype(np.float32)
        for exponent, part in zip(exponents.tolist(), layout.split(values), strict=True):
            with np.errstate(over="ignore", invalid="ignore"):
                part *= np.float32(2.0**exponent)
        if not np.isfinite(values).all():
            raise DecodeError("a value is NaN or infinite")
        return DenseUpdate(values)

    def error_bound(self, size: int) -> float:
        """Return the bound of 11 significant bits, and of what is 2^39 below the largest."""
        return 2.0**-22 + size * 2.0**-76

    def expected_bits(self, layout: Layout) -> float:
        """Return 16 bits an entry, and the exponent of each array."""
        return float(HALF_BITS * layout.size + EXPONENT_BITS * len(layout.sizes))
