"""Error feedback: what compression leaves out is added to the next update.

Sattler et al. 2020, Algorithm 2, for the residual A and the update dW: what is sent is
compress(A + dW), and the next A is A + dW minus what was sent.
"""

from dataclasses import dataclass

import numpy as np

from strategies.compression.compressor import Compressor
from strategies.compression.decoded_update import Update, Vector
from strategies.compression.vector_layout import Layout

# No training that converges comes near; below it, sums over any number of rounds stay finite.
MAX_CHANGE = 2.0**64


class DivergedError(ValueError):
    """An update with NaN or infinite values, or values beyond `MAX_CHANGE`."""


@dataclass(frozen=True)
class Compressed:
    """What `compress` returns.

    Attributes:
        data: The bytes to send.
        update: What they decode to.
        residual: What they leave out: float32 (n,).
    """

    data: bytes
    update: Update
    residual: Vector


def compress(
    update: Vector,
    residual: Vector,
    compressor: Compressor,
    layout: Layout,
    rng: np.random.Generator,
) -> Compressed:
    """Compress ``residual + update``.

    What is sent and the new residual sum to it, exactly where nothing is sent and up to one float32
    rounding elsewhere.

    Args:
        update: float32 (n,).
        residual: float32 (n,), not changed; zeros for no error feedback.
        compressor: The compressor.
        layout: The layout of the vector.
        rng: Random numbers for the compressor.

    Raises:
        DivergedError: The sum has NaN or infinite values.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        accumulated = residual + update
    if not np.isfinite(accumulated).all():
        raise DivergedError("the update has NaN or infinite values")
    data = compressor.encode(accumulated, layout, rng)
    sent = compressor.decode(data, layout)
    return Compressed(data, sent, accumulated - sent.to_dense())


def check_range(update: Update) -> None:
    """Check that all values are finite and at most `MAX_CHANGE`.

    Raises:
        DivergedError: They are not.
    """
    largest = update.max_abs()
    if not largest <= MAX_CHANGE:  # NaN too
        raise DivergedError(f"the update changes a weight by {largest:g}")
