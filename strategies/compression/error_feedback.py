"""Error feedback: what a client keeps of its updates, so that what compression loses comes later.

A client's *memory* is vectors of the model's size, by name, all zero at first. Each of its updates
becomes a vector to compress; the memory is settled once the server has accepted what was sent. A
reply that was lost or rejected leaves the memory as it was before it.

`NoFeedback` and `Residual` are here, `ef21` and `momentum_correction` have modules of their own.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from strategies.compression.compressor import Compressor
from strategies.compression.decoded_update import Update, Vector
from strategies.compression.vector_layout import Layout

Memory = Mapping[str, Vector]

# No training that converges comes near; below it, sums over any number of rounds stay finite.
MAX_CHANGE = 2.0**64
# Entries of a vector for which `check_contraction` asks.
LARGE = 10**6


class OutOfRangeError(ValueError):
    """An update with NaN or infinite values, or values beyond `MAX_CHANGE`."""


class ErrorFeedback(ABC):
    """A rule for a client's memory. It is a value, as compressors are.

    Attributes:
        memories: The names of the vectors that a client keeps; empty for none.
        keeps_estimates: Whether what is sent changes an estimate of the client's update that the
            server keeps (`update_sum`); else it is the update itself.
    """

    memories: ClassVar[tuple[str, ...]] = ()
    keeps_estimates: ClassVar[bool] = False

    def check_compressor(self, compressor: Compressor) -> None:
        """Check that the rule works with the compressor, which must be a contraction.

        Raises:
            ValueError: It does not.
        """
        check_contraction("uplink", compressor)

    @abstractmethod
    def to_send(self, update: Vector, memory: Memory) -> tuple[Vector, Memory]:
        """Return what to compress and send, and the memory for as long as it is not accepted.

        Args:
            update: What training changed, float32 (n,).
            memory: The client's, by name; not changed.
        """

    @abstractmethod
    def accepted(self, memory: Memory, sent: Update) -> Memory:
        """Return the memory once the server has accepted ``sent``.

        Args:
            memory: What `to_send` returned, not changed.
            sent: What the compressed bytes decode to.
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
    """Check that what a compressor leaves out is less than what it is given.

    Otherwise a residual, or the difference from an estimate, grows from round to round.

    Args:
        place: "uplink" or "downlink", for the error.
        compressor: The compressor; one whose bound is not known passes.

    Raises:
        ValueError: It is not.
    """
    bound = compressor.error_bound(LARGE)
    if bound is not None and not bound < 1:
        fix = compressor.contraction_fix()
        raise ValueError(
            f"{place} = {compressor}: the squared error can be {bound:.3g} times the update's "
            f"squared norm, so that what error feedback keeps would grow; give "
            f"{f'{fix}, or ' if fix else ''}feedback = 'none'"
        )


def add(first: Vector, second: Vector) -> Vector:
    """Return the sum; where it overflows it is infinite, which `compress` refuses."""
    with np.errstate(over="ignore", invalid="ignore"):
        return first + second


def compress(
    vector: Vector, compressor: Compressor, layout: Layout, rng: np.random.Generator
) -> tuple[bytes, Update]:
    """Return the bytes of a vector, and the update that the receiver decodes from them.

    Raises:
        OutOfRangeError: The vector has NaN or infinite values.
    """
    if not np.isfinite(vector).all():
        raise OutOfRangeError("the update has NaN or infinite values")
    data = compressor.encode(vector, layout, rng)
    return data, compressor.decode(data, layout)


def check_range(update: Update) -> None:
    """Check that all values are finite and at most `MAX_CHANGE`.

    Raises:
        OutOfRangeError: They are not.
    """
    largest = update.max_abs()
    if not largest <= MAX_CHANGE:  # NaN too
        raise OutOfRangeError(f"the update changes a weight by {largest:g}")
