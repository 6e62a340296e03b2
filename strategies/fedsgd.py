"""Federated SGD: the large-batch baseline of the FedAvg paper (arXiv 1602.05629v4, section 2).

"We select a C-fraction of clients on each round, and compute the gradient of the loss over all the
data held by these clients": B = infinity and E = 1 at any C; C = 1 is full-batch gradient descent.
"""

from typing import ClassVar

from flwr.app import ArrayRecord, ConfigRecord, Message
from flwr.serverapp import Grid

from strategies.aggregation import gradient_step
from strategies.arrays import from_record, to_record
from strategies.averaging import AveragingStrategy


class FedSGD(AveragingStrategy):
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
        del replies  # their sum is there
        learning_rate = self.sent_config["learning-rate"]
        assert isinstance(learning_rate, int | float)
        model = from_record(self.sent_arrays)
        stepped = gradient_step(model, self.mean(), learning_rate)
        return to_record(stepped)
