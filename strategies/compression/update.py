"""What every form of an update can do, and the error of bytes that are none."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]
Positions = NDArray[np.int64]
Bits = NDArray[np.uint8]


class CodecError(ValueError):
    """Bytes that do not encode an update; the message is the reason, in one line."""


class Update(Protocol):
    """A change of the model's flat vector, in some compressed form."""

    @property
    def size(self) -> int:
        """Number of entries of the vector it changes."""

    def to_dense(self) -> Vector:
        """Return the change as a new float32 vector of ``size`` entries."""

    def add_to(self, total: NDArray[np.float64], weight: float) -> None:
        """Add ``weight`` times the change to ``total``, in place."""

    def largest(self) -> float:
        """Return the largest magnitude of an entry, 0 where there is none."""

    def encode(self) -> bytes:
        """Return the change as bytes; ``decode`` of the same form returns an equal update."""


def mean(updates: Sequence[Update], weights: Sequence[float]) -> Vector:
    """Return sum_k w_k * dW_k / sum_k w_k, summed in the order given in float64, as float32.

    Args:
        updates: At least one, all of the same size.
        weights: One positive number per update.
    """
    total = np.zeros(updates[0].size, np.float64)
    weight_sum = float(sum(weights))
    for update, weight in zip(updates, weights, strict=True):
        update.add_to(total, weight / weight_sum)
    return total.astype(np.float32)
