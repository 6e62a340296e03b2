"""Deep gradient compression (DGC).

Y. Lin, S. Han, H. Mao, Y. Wang, W. J. Dally: Deep Gradient Compression: Reducing the Communication
Bandwidth for Distributed Training. ICLR 2018, arXiv 1712.01887.
"""

import math
from collections.abc import Mapping
from typing import Any

from strategies.compressed_server import CompressedStrategy
from strategies.compression.float32 import Float32
from strategies.compression.largest_entries import check_sparsity
from strategies.compression.momentum_correction import MomentumCorrection
from strategies.compression.sparse import Sparse
from strategies.server_optimizer import NONE


class DGC(CompressedStrategy):
    """DGC: top-k with momentum in the error feedback, clipping, and a warm-up of the sparsity.

    The clients' own momentum, of their SGD, should be 0. The server's updates are sent as they are.

    Args:
        sparsity_up: p of the clients' updates: the share of entries they send after the warm-up.
        momentum: Of the updates over the rounds in which a client takes part.
        clip_norm: Updates with a larger L2 norm are scaled down to it.
        warmup_rounds: The rounds in which the share falls to p, from 25 % with the defaults.
        scope: What entries are chosen from: every "tensor", or the whole "model".
        weights: How clients count in the mean: "uniform" or "samples", n_k.
        server_optimizer: Turns the mean update into the change of the model: "none", "sgd", "adam"
            or "yogi", or a table with arguments (`strategies.server_optimizer`).

    Raises:
        ValueError: An argument is out of its range.
    """

    def __init__(
        self,
        sparsity_up: float = 1 / 1000,
        momentum: float = 0.9,
        clip_norm: float = math.inf,
        warmup_rounds: int = 4,
        scope: str = "tensor",
        weights: str = "uniform",
        server_optimizer: str | Mapping[str, Any] = NONE,
    ) -> None:
        super().__init__(
            Sparse(check_sparsity("sparsity-up", sparsity_up), scope),
            Float32(),
            feedback=MomentumCorrection(momentum, clip_norm),
            warmup_rounds=warmup_rounds,
            weights=weights,
            server_optimizer=server_optimizer,
        )
