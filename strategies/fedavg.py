"""Federated averaging.

H. B. McMahan, E. Moore, D. Ramage, S. Hampson, B. Agüera y Arcas: Communication-Efficient Learning
of Deep Networks from Decentralized Data. AISTATS 2017, arXiv 1602.05629v4, Algorithm 1.
"""

from flwr.app import Array, ArrayRecord, Message

from strategies.aggregation import weighted_mean
from strategies.base import CohortStrategy
from strategies.screening import read_arrays
from strategies.weighting import check_weights, reply_weights


class FedAvg(CohortStrategy):
    """FedAvg: every client trains E epochs locally; the server takes sum_k (n_k / n) w_k.

    Args:
        weights: "samples" weights by n_k, "uniform" counts all clients alike.

    Raises:
        ValueError: ``weights`` is neither.
    """

    def __init__(self, weights: str = "samples") -> None:
        super().__init__()
        self._weights = check_weights(weights)

    def aggregate(self, replies: list[Message]) -> ArrayRecord:
        """Return the mean of the clients' models, weighted as the strategy was told."""
        mean = weighted_mean(
            [read_arrays(reply, self.sent_arrays) for reply in replies],
            reply_weights(replies, self._weights),
        )
        return ArrayRecord({name: Array(array) for name, array in mean.items()})
