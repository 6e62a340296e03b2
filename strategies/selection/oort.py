"""Selection of clients by the statistical utility of their data."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..registry import Share
from ..rounds.values import Round
from . import Candidate, Selection, generator


class Oort(Selection):
    """Clients with much data of a high loss are preferred; new ones are explored.

    F. Lai, X. Zhu, H. V. Madhyastha, M. Chowdhury: Oort: Efficient Federated Learning via Guided
    Participant Selection. OSDI 2021, arXiv 2010.06081, Algorithm 1, without its system part (T is
    infinite). The utility of a client is n_k times the loss of its last training, clipped at the
    95th percentile, plus sqrt(0.1 log R / L) for the last round L it took part in (the paper's
    loss is the root of the mean square over examples, which clients do not report).

    Args:
        exploration: epsilon, the share of the clients that are new, in round 1.
        decay: Multiplies epsilon each round.
        least: The smallest epsilon.
        cutoff: c: clients with at least this share of the last chosen utility are drawn from.
    """

    def __init__(
        self, exploration: Share = 0.9, decay: Share = 0.98, least: Share = 0.2,
        cutoff: Share = 0.95,
    ) -> None:  # fmt: skip
        self.exploration, self.decay, self.least, self.cutoff = exploration, decay, least, cutoff

    def select(self, now: Round, available: Sequence[Candidate], count: int) -> Sequence[int]:
        """Return places drawn by utility, and places of clients that have not taken part."""
        rng, explored = generator(now), np.array([client.last_round > 0 for client in available])
        old, new = np.flatnonzero(explored), np.flatnonzero(~explored)
        epsilon = max(self.exploration * self.decay ** (now.number - 1), self.least)
        num_new = min(max(round(epsilon * count), count - len(old)), len(new))
        chosen = list(rng.choice(new, size=num_new, replace=False))
        if num_old := min(count - num_new, len(old)):
            utility = self.utilities(now, [available[int(place)] for place in old])
            least = self.cutoff * np.sort(utility)[-num_old]
            pool = np.flatnonzero(utility >= least)
            weights = utility[pool] / utility[pool].sum()
            chosen += list(old[rng.choice(pool, size=num_old, replace=False, p=weights)])
        return [int(place) for place in chosen]

    def utilities(self, now: Round, clients: Sequence[Candidate]) -> NDArray[np.float64]:
        """Return the utilities of clients that have taken part; above 0."""
        losses = [max(client.metrics.get("train-loss", 0.0), 0.0) for client in clients]
        utility = np.array([client.num_examples for client in clients]) * losses
        utility = np.minimum(utility, np.quantile(utility, 0.95))
        last = np.array([client.last_round for client in clients])
        utility += np.sqrt(0.1 * math.log(max(now.number, 2)) / last)
        return utility
