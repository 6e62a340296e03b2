"""Selection of the clients with the largest losses."""

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from pydantic import Field

from ..rounds.values import Round
from . import Candidate, Selection, generator
from .by_size import shares


class PowerOfChoice(Selection):
    """Candidates are asked for the loss of the model on their training examples; the worst train.

    Y. J. Cho, J. Wang, G. Joshi: Client Selection in Federated Learning: Convergence Analysis and
    Power-of-Choice Selection Strategies. arXiv 2010.01243, section 4 (pi_pow-d). The candidates are
    drawn without replacement in proportion to n_k. The paper's mean is plain: weights = "uniform".

    Args:
        candidates: d, how many are asked; 0 means twice as many as train.
        metric: The name of the loss in their answers, in other apps' evaluations.
    """

    def __init__(self, candidates: Annotated[int, Field(ge=0)] = 0, metric: str = "loss") -> None:
        self.num_candidates, self.metric = candidates, metric

    def candidates(self, now: Round, available: Sequence[Candidate], count: int) -> Sequence[int]:
        """Return the places of d clients, drawn in proportion to n_k."""
        size = min(max(self.num_candidates or 2 * count, count), len(available))
        drawn = generator(now).choice(len(available), size=size, replace=False, p=shares(available))
        return sorted(drawn.tolist())

    def select(self, now: Round, available: Sequence[Candidate], count: int) -> Sequence[int]:
        """Return the places of the clients with the largest losses."""
        losses = np.array([client.metrics.get(self.metric, -np.inf) for client in available])
        return [int(place) for place in np.argsort(-losses, kind="stable")[:count]]
