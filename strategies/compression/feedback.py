"""Error feedback: what compression leaves out is added to the next update.

Sattler et al. 2020, eq. for A_i and Algorithm 2: with the residual A and the update dW, what is
sent is compress(A + dW), and A becomes A + dW - sent.
"""

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from strategies.compression.update import Update, Vector

Compressed = TypeVar("Compressed", bound=Update)


def compress_with_feedback(
    update: Vector, residual: Vector, compress: Callable[[Vector], Compressed]
) -> tuple[Compressed, Vector]:
    """Return (what to send, the new residual); their sum is ``residual + update``.

    The sum is exact where nothing is sent, and off by one float32 rounding elsewhere.

    Args:
        update: float32 (n,).
        residual: float32 (n,), left as it is.
        compress: The compression operator.

    Raises:
        ValueError: The accumulated update is not finite; the residual is then still good.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        accumulated = residual + update
    if not np.isfinite(accumulated).all():
        raise ValueError("the update has NaN or infinite values")
    sent = compress(accumulated)
    return sent, accumulated - sent.to_dense()
