"""SignSGD with majority vote.

J. Bernstein, Y.-X. Wang, K. Azizzadenesheli, A. Anandkumar: signSGD: Compressed Optimisation for
Non-Convex Problems. ICML 2018, arXiv 1802.04434; as compared to in Sattler et al. 2020.
"""

import math
from dataclasses import field

import numpy as np
from numpy.typing import NDArray
from pydantic.dataclasses import dataclass

from .base import Reply, Round
from .compressed_server import CompressedStrategy
from .compression.codec import Codec
from .compression.decoded_update import DenseUpdate, Update, Vector
from .compression.sign import Sign, Step
from .compression.vector_layout import Layout
from .registry import Weights
from .rounds.aggregation import Term
from .server_optimizer import NONE


@dataclass(kw_only=True, eq=False)
class SignSGD(CompressedStrategy):
    """SignSGD: clients send the signs of their update; the majority moves each weight one step.

    There is no error feedback. Tied votes, and weights that no client moves, leave the weight
    unchanged. The clients' learning rate hardly matters with one local step: only the sign of the
    step is sent, which is 0 where the step is lost in the weight's rounding.

    Args:
        step_size: delta, how far a weight moves in a round (the authors' experiments: 0.0002).
    """

    step_size: Step = 0.0002
    weights: Weights = field(default="uniform", init=False)
    server_optimizer: str = field(default=NONE, init=False)
    max_staleness: int = field(default=0, init=False)  # a vote counts or it does not
    staleness: float = field(default=0.5, init=False)

    def make_codec(self) -> Codec:
        """Return how server and clients compress."""
        return Codec(Sign(), Sign(self.step_size), "none")

    def read(self, now: Round, reply: Reply) -> tuple[Term]:
        """Return the client's votes: signs, whatever step size it sent."""
        (update,) = super().read(now, reply)
        assert isinstance(update, Update)
        return (DenseUpdate(np.sign(update.to_dense())),)

    def combine(self, mean: NDArray[np.float64]) -> Vector:
        """Return the direction that most clients voted for, entry by entry."""
        return np.sign(mean).astype(np.float32)

    def missed_updates_bits(self, count: int, layout: Layout) -> float:
        """Return log2(2s + 1) bits an entry: a sum of s signs has that many values."""
        return self.codec.uplink.expected_bits(layout) * math.log2(2 * count + 1)
