"""Sparse ternary compression (STC).

F. Sattler, S. Wiedemann, K.-R. Müller, W. Samek: Robust and Communication-Efficient Federated
Learning from Non-IID Data. IEEE TNNLS 31(9), 2020, arXiv 1903.02891, Algorithm 2, with the place of
each line. In every round a client i that takes part, whose residual R_i is zero at first, does

    W     <- W + dW~                   the updates it missed       `CompressedClient.answer`
    dW_i  <- R_i + SGD(W, D_i, b) - W  update plus residual        `compressed_client.compressed`
    dW~_i <- STC(dW_i, p_up)           ternary of the largest      `Ternary.encode`
    R_i   <- dW_i - dW~_i              what was left               `compressed_client.compressed`

and sends dW~_i. Then the server does, in `CompressedStrategy.step`,

    dW    <- R + mean_i dW~_i          update plus residual
    dW~   <- STC(dW, p_down)           ternary of the largest      `Ternary.encode`
    R     <- dW - dW~                  what was left
    W     <- W + dW~

STC itself is the paper's Algorithm 1, in `compression/ternary.py`; positions are sent by Algorithms
3 and 4, in `compression/golomb.py`. A client's R_i changes once the server has used its reply.
"""

from pydantic.dataclasses import dataclass

from .compressed_server import CompressedStrategy
from .compression.codec import Codec
from .compression.ternary import Ternary
from .registry import Scope, Share


@dataclass(kw_only=True, eq=False)
class STC(CompressedStrategy):
    """STC: sparse ternary updates with error feedback, up and down.

    The paper takes one local step a round ("local-steps = 1") and p = 1/400, 1/100 or 1/25 in both
    directions.

    Args:
        sparsity_up: p of the clients' updates: the share of entries they send.
        sparsity_down: p of the server's.
        scope: What has its own magnitude: each "tensor", as in the authors' code, or the whole
            "model", as in Algorithm 1.

    The others are those of `CompressedStrategy`.
    """

    sparsity_up: Share = 1 / 400
    sparsity_down: Share = 1 / 400
    scope: Scope = "tensor"

    def make_codec(self) -> Codec:
        """Return STC with p_up for the clients and p_down for the server, and their residuals."""
        up, down = (Ternary(p, self.scope) for p in (self.sparsity_up, self.sparsity_down))
        return Codec(uplink=up, downlink=down, feedback="residual")
