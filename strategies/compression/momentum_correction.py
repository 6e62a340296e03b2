"""Error feedback with momentum: the residual of deep gradient compression.

Y. Lin, S. Han, H. Mao, Y. Wang, W. J. Dally: Deep Gradient Compression: Reducing the Communication
Bandwidth for Distributed Training. ICLR 2018, arXiv 1712.01887, section 3.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from strategies.compression.compressor import Compressor
from strategies.compression.decoded_update import Update, Vector
from strategies.compression.error_feedback import ErrorFeedback, Memory, add


@dataclass(frozen=True)
class MomentumCorrection(ErrorFeedback):
    """Keeps a momentum u <- m u + update, and adds u to the residual instead of the update.

    Entries that were sent are zero in the momentum afterwards ("momentum factor masking"): where
    all are sent nothing is left of it, and this is SGD without momentum.

    Args:
        momentum: m, from 0 to below 1.
        clip_norm: Updates with a larger L2 norm are scaled down to it. The paper clips the
            gradient at each of N nodes to its threshold divided by the root of N.

    Raises:
        ValueError: An argument is out of its range.
    """

    memories: ClassVar[tuple[str, ...]] = ("residual", "momentum")

    momentum: float = 0.9
    clip_norm: float = math.inf

    def __post_init__(self) -> None:
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum = {self.momentum!r}: give a number from 0 to below 1")
        if not self.clip_norm > 0:
            raise ValueError(f"clip-norm = {self.clip_norm!r}: give a number above 0")

    def check_compressor(self, compressor: Compressor) -> None:
        """Check that the compressor leaves entries out; those sent lose their momentum.

        Raises:
            ValueError: It has no argument "sparsity", or is not a contraction.
        """
        super().check_compressor(compressor)
        if not hasattr(compressor, "sparsity"):
            name = type(compressor).__name__
            raise ValueError(
                f"feedback = 'momentum': {name} sends all entries, and only the momentum of the "
                "others is kept; give an uplink with a sparsity, or feedback = 'residual'"
            )

    def to_send(self, update: Vector, memory: Memory) -> tuple[Vector, Memory]:
        """Return the residual with the new momentum, and both."""
        # Not `np.linalg.norm`: sums of BLAS depend on the number of its threads.
        norm = math.sqrt(np.square(update, dtype=np.float64).sum())
        if self.clip_norm < norm < math.inf:
            update = update * np.float32(self.clip_norm / norm)
        momentum = add(np.float32(self.momentum) * memory["momentum"], update)
        total = add(memory["residual"], momentum)
        return total, {"residual": total, "momentum": momentum}

    def accepted(self, memory: Memory, sent: Update) -> Memory:
        """Return the residual less what was sent, and the momentum of what was not."""
        dense = sent.to_dense()
        return {
            "residual": memory["residual"] - dense,
            "momentum": np.where(dense == 0, memory["momentum"], np.float32(0)),
        }
