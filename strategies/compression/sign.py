"""Signs: a step of one fixed size up, down or not at all, for every entry (signSGD).

J. Bernstein et al.: signSGD, ICML 2018, arXiv 1802.04434. One bit per entry, plus what the paper's
count leaves out: a sign may be 0 (no gradient, a tied vote), so the positions of the zeros are sent
too, in Golomb's code (`golomb`).
"""

import math
import struct
from typing import Annotated

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from . import golomb
from .compressor import Compressor
from .decoded_update import DecodeError, DenseUpdate, Vector, signs_of
from .vector_layout import Layout

# A positive number of float32.
Step = Annotated[float, Field(ge=1e-45, le=3.4e38)]
HEAD = struct.Struct("<fBI")


@dataclass(frozen=True)
class Sign(Compressor):
    """Sends the sign of every entry, and one step size.

    Args:
        step: The size of a step: the decoded entries are -step, 0 or step.
    """

    step: Step = 1.0

    def encode(self, vector: Vector, layout: Layout, rng: np.random.Generator) -> bytes:
        """Return the update's bytes."""
        zeros = np.flatnonzero(vector == 0)
        b = golomb.parameter(len(zeros) / max(len(vector), 1))
        bits = golomb.encode(zeros, b, vector[vector != 0] < 0)
        return HEAD.pack(self.step, b, len(zeros)) + bits

    def decode(self, data: bytes, layout: Layout) -> DenseUpdate:
        """Return the update, with the step in the bytes; DecodeError if they are not an update."""
        size = layout.size
        if len(data) < HEAD.size:
            raise DecodeError(f"{len(data)} bytes, the head alone takes {HEAD.size}")
        step, b, count = HEAD.unpack_from(data)
        if not (math.isfinite(step) and step > 0):
            raise DecodeError(f"the step is {step}, not a positive number")
        zeros, negative = golomb.decode(data[HEAD.size :], b, count, size, signs=size - count)
        values = signs_of(negative) * np.float32(step)
        if count:
            steps, nonzero = values, np.ones(size, np.bool_)
            nonzero[zeros] = False
            values = np.zeros(size, np.float32)
            values[nonzero] = steps
        return DenseUpdate(values)

    def error_bound(self, size: int) -> float:
        """Return infinity: the step does not depend on the vector."""
        return math.inf

    def expected_bits(self, layout: Layout) -> float:
        """Return one bit per entry."""
        return float(layout.size)
