"""The contract of compressors: an update as bytes, and back.

A compressor is a class in its own file. It is a value: two compressors with the same arguments
encode and decode alike, so that server and client can each build theirs. Both continue with
`Compressor.decode` of the bytes that are sent, so that they agree to the last bit. docs/protocol.md
has the bytes of every compressor here.
"""

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
from pydantic import ConfigDict

from .decoded_update import Update, Vector
from .vector_layout import Layout


class Compressor(ABC):
    """Encodes updates as bytes and decodes them."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    @abstractmethod
    def encode(self, vector: Vector, layout: Layout, rng: np.random.Generator) -> bytes:
        """Return the bytes of an update.

        Args:
            vector: float32 (n,), finite, read-only.
            layout: The names and shapes of the model's arrays, whose entries the vector holds.
            rng: Random numbers for stochastic compressors; the same seed gives the same bytes.
        """

    @abstractmethod
    def decode(self, data: bytes, layout: Layout) -> Update:
        """Return the update that the bytes encode.

        Time and memory are bounded by the size of the layout, whatever the bytes claim.

        Raises:
            DecodeError: The bytes are not such an update for this layout.
        """

    @abstractmethod
    def expected_bits(self, layout: Layout) -> float:
        """Return the bits of an update of this layout by the method's formula.

        Without headers; the bytes actually sent are counted separately.
        """

    def error_bound(self, size: int) -> float | None:
        """Return a bound on E||Q(v) - v||^2 / ||v||^2 over all vectors v of ``size`` entries.

        E is the mean over seeds. Below 1 the compressor is a contraction, which error feedback
        needs: what is left out of an update must be less than the update. Infinite if there is no
        bound; None if none is known.
        """
        return None
