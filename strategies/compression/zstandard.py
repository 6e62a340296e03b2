"""Another compressor's bytes, packed with Zstandard (RFC 8878).

It is the baseline for methods made for updates: plain numbers, in half precision or 8 bits an
entry, packed by a general-purpose compressor.
"""

import math
from dataclasses import field
from typing import Annotated

import numpy as np
import zstandard
from pydantic import Field
from pydantic.dataclasses import dataclass

from .. import compression
from ..registry import Part
from .compressor import Compressor
from .decoded_update import DecodeError, Update, Vector
from .float32 import BITS
from .vector_layout import Layout

# Bytes of heads, of all together and of each array, which formulas leave out.
HEADS, ARRAY_HEADS = 1024, 16


@dataclass(frozen=True)
class Zstandard(Compressor):
    """Sends what another compressor would send, packed.

    The bytes depend on the version of the Zstandard library as well; what they unpack to does not.

    Args:
        of: The other compressor: its name, or a table with its name and arguments, as
            {name = "quantized", bits = 8, norm = "max"}.
        level: Of the packing, from 1 (fast) to 22 (small).

    Raises:
        ValueError, ImportError, AttributeError: As for `compression.build`.
    """

    of: Part = "float16"
    level: Annotated[int, Field(ge=1, le=22)] = 3
    inner: Compressor = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "inner", compression.COMPRESSORS.build_part("of", self.of))

    def encode(self, vector: Vector, layout: Layout, rng: np.random.Generator) -> bytes:
        """Return the other compressor's bytes as a Zstandard frame; none where that has none."""
        data = self.inner.encode(vector, layout, rng)
        return zstandard.ZstdCompressor(level=int(self.level)).compress(data) if data else b""

    def decode(self, data: bytes, layout: Layout) -> Update:
        """Return the update; DecodeError if the bytes are not one such frame.

        A frame that states a size beyond what the other compressor can need for this layout is
        refused before anything is allocated.
        """
        if not data:
            return self.inner.decode(b"", layout)
        # Where the formula is for entries of a normal distribution, others may take more, but not
        # more than float32.
        bits = max(2 * self.inner.expected_bits(layout), BITS * layout.size)
        most = math.ceil(bits / 8) + HEADS + ARRAY_HEADS * len(layout.shapes)
        try:
            # -1 (read as 2^64 - 1) where the frame does not say; 0 for a skippable one, too.
            size = zstandard.get_frame_parameters(data).content_size
            if not 0 < size <= most:
                raise DecodeError(
                    f"the frame states {size} bytes, {most} are the most there can be"
                )
            content = zstandard.ZstdDecompressor().decompress(
                data, max_output_size=most, allow_extra_data=False
            )
        except zstandard.ZstdError as error:
            raise DecodeError(f"not a Zstandard frame: {error}") from error
        return self.inner.decode(content, layout)

    def error_bound(self, size: int) -> float | None:
        """Return the other compressor's bound."""
        return self.inner.error_bound(size)

    def expected_bits(self, layout: Layout) -> float:
        """Return the other compressor's formula: but for the frame's few bytes, an upper bound."""
        return self.inner.expected_bits(layout)
