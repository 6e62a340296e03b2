"""EF21: clients send the compressed change of an estimate of their update.

P. Richtarik, I. Sokolov, I. Fatkhullin: EF21: A New, Simpler, Theoretically Better, and Practically
Faster Error Feedback. NeurIPS 2021, arXiv 2106.05203, Algorithm 2. With few clients a round it is
EF21-PP (Fatkhullin et al. 2021, arXiv 2110.03294): the server steps by the mean of all estimates,
those of clients that are absent included.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from strategies.compression.decoded_update import Update, Vector
from strategies.compression.error_feedback import ErrorFeedback, Memory, add


@dataclass(frozen=True)
class EF21(ErrorFeedback):
    """Sends c = compress(update - g) for an estimate g of the update; both ends add c to their g.

    For compressors that are contractions, such as `sparse` and `ternary`; others are refused.
    """

    memories: ClassVar[tuple[str, ...]] = ("estimate",)
    keeps_estimates: ClassVar[bool] = True

    def to_send(self, update: Vector, memory: Memory) -> tuple[Vector, Memory]:
        """Return the update less the estimate, and the estimate."""
        return add(update, -memory["estimate"]), memory

    def accepted(self, memory: Memory, sent: Update) -> Memory:
        """Return the estimate with what was sent."""
        return {"estimate": np.asarray(memory["estimate"] + sent.to_dense())}
