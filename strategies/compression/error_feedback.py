"""Error feedback: clients keep what compression loses, and send it later.

A client's *memory* is vectors of the model's size, by name, all zero at first. Each of its updates
becomes a vector to compress; the memory is settled once the server has accepted what was sent. A
reply that was lost or rejected settles nothing: its content is still in the memory.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from .compressor import Compressor
from .decoded_update import Update, Vector
from .vector_layout import Layout

Memory = Mapping[str, Vector]

# No converging training comes near this; below it, sums over any number of rounds stay finite.
MAX_CHANGE = 2.0**64
# Entries of a vector for which `check_contraction` asks.
LARGE = 10**6


class OutOfRangeError(ValueError):
    """An update with NaN or infinite values, or values beyond `MAX_CHANGE`."""


class ErrorFeedback(ABC):
    """A rule for a client's memory. It is a value, like a compressor.

    Attributes:
        memories: The names of the vectors that a client keeps; empty for none.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    memories: ClassVar[tuple[str, ...]] = ()

    def check_compressor(self, compressor: Compressor) -> None:
        """Check that the rule works with the compressor; ValueError if it does not contract."""
        check_contraction("uplink", compressor)

    @abstractmethod
    def to_send(self, update: Vector, memory: Memory) -> tuple[Vector, Memory]:
        """Return the vector to compress and send, and the memory to keep until it is accepted.

        The update is the change from training, float32 (n,); neither it nor the given memory
        changes.
        """

    @abstractmethod
    def accepted(self, memory: Memory, sent: Update) -> Memory:
        """Return the memory once the server has accepted ``sent``.

        ``sent`` is what the bytes decode to; the memory that `to_send` returned is not changed.
        """


@dataclass(frozen=True)
class NoFeedback(ErrorFeedback):
    """Sends every update independently; what compression leaves out is lost."""

    def check_compressor(self, compressor: Compressor) -> None:
        """Accept any compressor: nothing is fed back."""

    def to_send(self, update: Vector, memory: Memory) -> tuple[Vector, Memory]:
        """Return the update."""
        return update, memory

    def accepted(self, memory: Memory, sent: Update) -> Memory:
        """Return the memory, which is empty."""
        return memory


@dataclass(frozen=True)
class Residual(ErrorFeedback):
    """Adds what was not sent to the next update.

    Sattler et al. 2020, Algorithm 2, for the residual A and the update dW: compress(A + dW) is
    sent, and the next A is A + dW minus what was sent. Sent updates and residual sum to all updates
    up to float32 rounding.
    """

    memories: ClassVar[tuple[str, ...]] = ("residual",)

    def to_send(self, update: Vector, memory: Memory) -> tuple[Vector, Memory]:
        """Return A + dW, twice."""
        total = add(memory["residual"], update)
        return total, {"residual": total}

    def accepted(self, memory: Memory, sent: Update) -> Memory:
        """Return A + dW minus what was sent."""
        return {"residual": memory["residual"] - sent.to_dense()}


def check_contraction(place: str, compressor: Compressor) -> None:
    """Check that what a compressor leaves out is less than its input, if that is known.

    Args:
        place: "uplink" or "downlink", for the error.
        compressor: The compressor.

    Raises:
        ValueError: It is not.
    """
    bound = compressor.error_bound(LARGE)
    if bound is not None and not bound < 1:
        raise ValueError(
            f"{place} = {compressor}: the squared error can be {bound:.3g} times the update's "
            f"squared norm, so that what error feedback keeps would grow; give "
            "a compressor with a smaller error, or feedback = 'none'"
        )


def add(first: Vector, second: Vector) -> Vector:
    """Return the sum; on overflow it is infinite, which `compress` refuses."""
    with np.errstate(over="ignore", invalid="ignore"):
        return first + second


def compress(
    vector: Vector, compressor: Compressor, layout: Layout, rng: np.random.Generator
) -> tuple[bytes, Update]:
    """Return a vector's bytes, and what they decode to.

    Raises:
        OutOfRangeError: The vector is not finite, or as for `check_range`.
    """
    if not np.isfinite(vector).all():
        raise OutOfRangeError("the update has NaN or infinite values")
    data = compressor.encode(vector, layout, rng)
    sent = compressor.decode(data, layout)
    check_range(sent)
    return data, sent


def check_range(update: Update) -> None:
    """Check that all values are finite and at most `MAX_CHANGE`, else OutOfRangeError."""
    largest = update.max_abs()
    if not largest <= MAX_CHANGE:  # NaN too
        raise OutOfRangeError(f"the update changes a weight by {largest:g}")
