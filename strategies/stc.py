"""Sparse ternary compression.

F. Sattler, S. Wiedemann, K.-R. Müller, W. Samek: Robust and Communication-Efficient Federated
Learning from Non-IID Data. IEEE TNNLS 31(9), 2020, arXiv 1903.02891, Algorithms 1 to 4.
"""

from pydantic.dataclasses import dataclass

from .codec import Codec
from .compressed_server import CompressedStrategy
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
        """Return how server and clients compress."""
        up, down = (Ternary(p, self.scope) for p in (self.sparsity_up, self.sparsity_down))
        return Codec(up, down)
