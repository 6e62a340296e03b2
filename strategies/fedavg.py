"""Federated averaging.

H. B. McMahan, E. Moore, D. Ramage, S. Hampson, B. Agüera y Arcas: Communication-Efficient Learning
of Deep Networks from Decentralized Data. AISTATS 2017, arXiv 1602.05629v4, Algorithm 1.
"""

from flwr.app import ArrayRecord, Message

from strategies.arrays import to_record
from strategies.averaging import AveragingStrategy


class FedAvg(AveragingStrategy):
    """FedAvg: every client trains E epochs locally; the server takes sum_k (n_k / n) w_k.

    Args:
        weights: "samples" weights by n_k, "uniform" counts all clients alike.

    Raises:
        ValueError: ``weights`` is neither.
    """

    def aggregate(self, replies: list[Message]) -> ArrayRecord:
        """Return the mean of the clients' models, weighted as the strategy was told."""
        del replies  # their sum is there
        return to_record(self.mean())
