"""How far clients may go: the run's bounds on replies, beyond what is plainly wrong."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Bounds on one reply, and on a round.

    Attributes:
        max_examples: The most examples that a client may claim; its weight in a mean is no larger.
        max_update_norm: The largest L2 norm of a client's update, over all its arrays together.
        min_replies: The replies that a round must have to change the model.
    """

    max_examples: int = 10**9
    max_update_norm: float = math.inf
    min_replies: int = 1

    @property
    def bound_norms(self) -> bool:
        """Whether norms are bounded at all; they cost a pass over the update."""
        return self.max_update_norm < math.inf


DEFAULTS = Limits()
