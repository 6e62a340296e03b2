"""Federated SGD: the large-batch baseline of the FedAvg paper (arXiv 1602.05629v4, section 2).

"We select a C-fraction of clients on each round, and compute the gradient of the loss over all the
data held by these clients": B = infinity and E = 1 at any C; C = 1 is full-batch gradient descent.
"""

from typing import ClassVar

from flwr.app import Array, ArrayRecord, ConfigRecord, Message
from flwr.serverapp import Grid

from strategies.aggregation import gradient_step, weighted_mean
from strategies.base import CohortStrategy
from strategies.screening import read_arrays
from strategies.weighting import check_weights, reply_weights


class FedSGD(CohortStrategy):
    """FedSGD: clients send the gradient of their whole local loss; the server takes the step.

    w <- w - eta * sum_k (n_k / n) g_k, with eta the round's "learning-rate". The config's local
    work (epochs, steps, batch size) does not apply: one gradient over all local examples. With
    momentum m, clients send v <- m v + g instead of g.

    Args:
        weights: "samples" weights by n_k, "uniform" counts all clients alike.

    Raises:
        ValueError: ``weights`` is neither.
    """

    train_type: ClassVar[str] = "train.gradient"

    def __init__(self, weights: str = "samples") -> None:
        super().__init__()
        self._weights = check_weights(weights)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Return one gradient message per node of the grid.

        Raises:
            ValueError: ``config`` has no number "learning-rate".
        """
        if not isinstance(config.get("learning-rate"), int | float):
            raise ValueError("FedSGD needs a number 'learning-rate' in the train config")
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate(self, replies: list[Message]) -> ArrayRecord:
        """Return the model after one step along the mean gradient, weighted as told."""
        gradient = weighted_mean(
            [read_arrays(reply, self.sent_arrays) for reply in replies],
            reply_weights(replies, self._weights),
        )
        learning_rate = self.sent_config["learning-rate"]
        assert isinstance(learning_rate, int | float)
        model = {name: array.numpy() for name, array in self.sent_arrays.items()}
        stepped = gradient_step(model, gradient, learning_rate)
        return ArrayRecord({name: Array(array) for name, array in stepped.items()})
