"""Error feedback: what compression leaves out of an update is added to the next one.

Sattler et al. 2020, Algorithm 2, for the residual A, zero at first, and the update dW: A + dW is
compressed and sent, and the next A is A + dW minus what was sent. Sent updates and residual sum to
all updates up to float32 rounding. A client's residual changes once the server has accepted what
was sent: the content of a reply that was lost or rejected is still in it.

With a decay beta below 1 a client compresses beta A + dW (A. Sarfi et al. 2025, SparseLoCo, arXiv
2508.15706), whether its last update was accepted or not. In `strategies.cafe` they keep nothing.
"""

import numpy as np

from .compressor import Compressor
from .decoded_update import DecodeError, Update, Vector
from .vector_layout import Layout

# No converging training comes near this; below it, sums over any number of rounds stay finite.
MAX_CHANGE = 2.0**64
# Entries of a vector for which `check_contraction` asks.
LARGE = 10**6


class OutOfRangeError(ValueError):
    """An update with NaN or infinite values, or values beyond `MAX_CHANGE`."""


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
            "a compressor with a smaller error, or the strategy compressed with feedback = 'none'"
        )


def add(residual: Vector, update: Vector, out: Vector | None = None) -> Vector:
    """Return the sum, in ``out`` if given; on overflow it is infinite, which `compress` refuses."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.add(residual, update, out=out)


def compress(
    vector: Vector, compressor: Compressor, layout: Layout, rng: np.random.Generator
) -> tuple[bytes, Update]:
    """Return a vector's bytes, and what they decode to.

    Raises:
        OutOfRangeError: The vector is not finite, or as for `check_range`.
        ValueError: The compressor writes to the vector, cannot read its own bytes, or makes NaN.
    """
    if not np.isfinite(vector).all():
        raise OutOfRangeError("the update has NaN or infinite values")
    own = vector.view()
    own.flags.writeable = False  # the sum of what was left is still needed
    data = compressor.encode(own, layout, rng)
    try:
        sent = compressor.decode(data, layout)
        sent.check(layout.size)
    except DecodeError as error:
        raise ValueError(f"{compressor} cannot read its own bytes: {error}") from error
    try:
        check_range(sent)
    except OutOfRangeError:
        if np.isnan(sent.max_abs()) and np.abs(vector).max() <= MAX_CHANGE:
            raise ValueError(f"{compressor} turns a finite update into NaN") from None
        raise
    return data, sent


def check_range(update: Update) -> None:
    """Check that all values are finite and at most `MAX_CHANGE`, else OutOfRangeError."""
    largest = update.max_abs()
    if not largest <= MAX_CHANGE:  # NaN too
        raise OutOfRangeError(f"the update changes a weight by {largest:g}")
