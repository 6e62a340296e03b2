"""Federated averaging.

H. B. McMahan, E. Moore, D. Ramage, S. Hampson, B. Agüera y Arcas: Communication-Efficient Learning
of Deep Networks from Decentralized Data. AISTATS 2017, arXiv 1602.05629v4, Algorithm 1.
"""

from flwr.app import Message

from strategies.aggregation import Arrays, WeightedMean, check_weights
from strategies.base import FederatedStrategy
from strategies.reply_validation import ClientUpdate, validate_arrays


class FedAvg(FederatedStrategy[Arrays]):
    """FedAvg: clients train E epochs locally; the next model is w <- sum_k (n_k / n) w_k.

    Args:
        weights: "samples" weights clients by n_k, "uniform" equally.

    Raises:
        ValueError: ``weights`` is neither.
    """

    def __init__(self, weights: str = "samples") -> None:
        super().__init__()
        self.weights = check_weights(weights)
        self.reset()

    def validate(self, reply: Message) -> ClientUpdate[Arrays]:
        """Return the client's model w_k; it must have the arrays of the model that was sent."""
        return validate_arrays(reply, self.model, self.settings.bounds, origin=self.model)

    def accumulate(self, update: ClientUpdate[Arrays]) -> None:
        """Add n_k w_k to the sum, and n_k to n."""
        weight = update.report.num_examples if self.weights == "samples" else 1.0
        self.mean.add(update.content, weight)

    def finalize(self, model: Arrays) -> Arrays:
        """Return sum_k (n_k / n) w_k."""
        del model
        return self.mean.result()

    def reset(self) -> None:
        """Begin with an empty sum."""
        self.mean = WeightedMean()
