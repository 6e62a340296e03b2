"""Deep gradient compression (DGC).

Y. Lin, S. Han, H. Mao, Y. Wang, W. J. Dally: Deep Gradient Compression: Reducing the Communication
Bandwidth for Distributed Training. ICLR 2018, arXiv 1712.01887.
"""

import math
from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from .codec import Codec
from .compressed_server import CompressedStrategy
from .compression.error_feedback import MomentumCorrection
from .compression.float32 import Float32
from .compression.sparse import Sparse
from .registry import Decay, Scope, Share


@dataclass(kw_only=True, eq=False)
class DGC(CompressedStrategy):
    """DGC: top-k with momentum in the error feedback, clipping, and a warm-up of the sparsity.

    The momentum of the clients' SGD should be 0. The server sends the full model.

    Args:
        sparsity_up: p of the clients' updates: the share of entries they send after the warm-up.
        momentum: Momentum of the updates over the rounds in which a client takes part.
        clip_norm: Updates with a larger L2 norm are scaled down to it.
        warmup_rounds: The rounds in which the share falls to p, from 25 % with the defaults.
        scope: Where entries are selected from: each "tensor", or the whole "model".

    The others are those of `CompressedStrategy`.
    """

    sparsity_up: Share = 1 / 1000
    momentum: Decay = 0.9
    clip_norm: Annotated[float, Field(gt=0)] = math.inf
    warmup_rounds: Annotated[int, Field(ge=0)] = 4
    scope: Scope = "tensor"

    def make_codec(self) -> Codec:
        """Return how server and clients compress."""
        uplink = Sparse(self.sparsity_up, self.scope)
        feedback = MomentumCorrection(self.momentum, self.clip_norm)
        return Codec(uplink, Float32(), feedback, self.warmup_rounds)
