"""Top-k sparsification, "gradient dropping": one of the methods that STC is compared to.

A. F. Aji, K. Heafield: Sparse Communication for Distributed Gradient Descent. EMNLP 2017, arXiv
1704.05021; as in Sattler et al. 2020, without momentum correction, clipping or warm-up.
"""

from pydantic.dataclasses import dataclass

from .codec import Codec
from .compressed_server import CompressedStrategy
from .compression.float32 import Float32
from .compression.sparse import Sparse
from .registry import Scope, Share


@dataclass(kw_only=True, eq=False)
class TopK(CompressedStrategy):
    """Top-k: clients send their largest entries unchanged, with error feedback.

    With the default sparsity_down = 1 the server sends all entries, and clients download the full
    model. A smaller value makes the server's updates sparse, too.

    Args:
        sparsity_up: p of the clients' updates: the share of entries they send.
        sparsity_down: p of the server's.
        scope: Where entries are selected from: each "tensor", or the whole "model".

    The others are those of `CompressedStrategy`.
    """

    sparsity_up: Share = 1 / 100
    sparsity_down: Share = 1.0
    scope: Scope = "tensor"

    def make_codec(self) -> Codec:
        """Return how server and clients compress."""
        down = Float32() if self.sparsity_down == 1 else Sparse(self.sparsity_down, self.scope)
        return Codec(Sparse(self.sparsity_up, self.scope), down)
