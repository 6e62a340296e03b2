"""Federated averaging.

H. B. McMahan, E. Moore, D. Ramage, S. Hampson, B. Agüera y Arcas: Communication-Efficient Learning
of Deep Networks from Decentralized Data. AISTATS 2017, arXiv 1602.05629v4, Algorithm 1.
"""

from flwr.app import Array, ArrayRecord, Message

from strategies.aggregation import weighted_mean
from strategies.base import CohortStrategy
from strategies.screening import num_examples, read_arrays


class FedAvg(CohortStrategy):
    """FedAvg: every client trains E epochs locally; the server takes sum_k (n_k / n) w_k."""

    def aggregate(self, replies: list[Message]) -> ArrayRecord:
        """Return the mean of the clients' models, weighted by their numbers of examples n_k."""
        mean = weighted_mean(
            [read_arrays(reply, self.sent_arrays) for reply in replies],
            [num_examples(reply) for reply in replies],
        )
        return ArrayRecord({name: Array(array) for name, array in mean.items()})
