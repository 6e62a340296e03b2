"""EF21: error feedback by estimates instead of residuals.

P. Richtarik, I. Sokolov, I. Fatkhullin: EF21: A New, Simpler, Theoretically Better, and Practically
Faster Error Feedback. NeurIPS 2021, arXiv 2106.05203; with few clients a round as in EF21-PP, arXiv
2110.03294. The paper compresses gradients by top-k; here it is the change by the local training.
"""

from pydantic.dataclasses import dataclass

from strategies.codec import Codec
from strategies.compressed_server import CompressedStrategy
from strategies.compression import error_feedback
from strategies.compression.float32 import Float32
from strategies.compression.sparse import Sparse
from strategies.registry import Scope, Share


@dataclass(kw_only=True, eq=False)
class EF21(CompressedStrategy):
    """EF21: clients send the largest entries of their update minus an estimate of it.

    The server keeps every client's estimate, a model's size each, and steps by their mean in each
    round: a client that is absent counts with its last one, so that it takes part in more rounds
    than it trains in. So does one that lied once: bound it by ``max-update-norm``, which limits the
    estimate. The server's updates are sent as they are.

    Args:
        sparsity_up: p of what clients send: the share of entries.
        scope: What entries are chosen from: every "tensor", or the whole "model".

    The others are those of `CompressedStrategy`.
    """

    sparsity_up: Share = 1 / 100
    scope: Scope = "tensor"

    def make_codec(self) -> Codec:
        """Return what both ends compress with."""
        uplink = Sparse(self.sparsity_up, self.scope)
        return Codec(uplink, Float32(), error_feedback.EF21())
