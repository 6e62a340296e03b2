"""Selection in proportion to the clients' numbers of examples."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..rounds.values import Round
from . import Candidate, Selection, generator


class BySize(Selection):
    """Clients are drawn with replacement, in proportion to n_k; the mean of the draws is plain.

    Scheme I of X. Li, K. Huang, W. Yang, S. Wang, Z. Zhang: On the Convergence of FedAvg on
    Non-IID Data. ICLR 2020, arXiv 1907.02189, section 3.3: an unbiased estimate of the mean over
    all clients. A client drawn twice trains once and counts twice.
    """

    with_replacement = True

    def select(self, now: Round, available: Sequence[Candidate], count: int) -> Sequence[int]:
        """Return places drawn in proportion to n_k."""
        drawn = generator(now).choice(len(available), size=count, p=shares(available))
        return [int(place) for place in drawn]


def shares(available: Sequence[Candidate]) -> NDArray[np.float64]:
    """Return each client's share of the examples; unknown numbers are the mean of the known."""
    sizes = np.array([client.num_examples for client in available], np.float64)
    known = sizes[sizes > 0]
    sizes[sizes <= 0] = known.mean() if known.size else 1.0
    sizes /= sizes.sum()
    return sizes
