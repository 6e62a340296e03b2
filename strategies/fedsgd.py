"""Federated SGD: the large-batch baseline of the FedAvg paper (arXiv 1602.05629v4, section 2).

"We select a C-fraction of clients on each round, and compute the gradient of the loss over all the
data held by these clients": B = infinity and E = 1 at any C; C = 1 is full-batch gradient descent.
"""

from typing import ClassVar

from flwr.app import Message

from strategies.aggregation import Arrays, moved
from strategies.fedavg import FedAvg
from strategies.reply_validation import ClientUpdate, validate_arrays


class FedSGD(FedAvg):
    """FedSGD: clients send gradients g_k; the server steps w <- w - eta * sum_k (n_k / n) g_k.

    g_k is the gradient of the mean loss over all local examples, so the config's local epochs,
    steps and batch size have no effect; eta is the round's "learning-rate". With momentum m clients
    send v_k <- m v_k + g_k instead.

    Args:
        weights: "samples" weights clients by n_k, "uniform" equally.
        server_optimizer: Turns the step into the change of the model: "none", "sgd", "adam" or
            "yogi", or a table with arguments (`strategies.server_optimizer`).
    """

    train_type: ClassVar[str] = "train.gradient"
    local_work: ClassVar[str] = "one gradient over all its examples"

    def validate(self, reply: Message) -> ClientUpdate[Arrays]:
        """Return the client's gradient g_k; it must have the arrays of the model."""
        buffers = self.buffers(self.model)
        return validate_arrays(reply, self.model, self.settings.bounds, origin=buffers)

    def finalize(self, model: Arrays) -> Arrays:
        """Return w - eta * sum_k (n_k / n) g_k.

        A server optimiser steps by -eta times the mean gradient instead.
        """
        learning_rate = float(str(self.config["learning-rate"]))
        updates = {name: -learning_rate * g.astype(float) for name, g in self.mean.result().items()}
        if self.server_optimizer is not None:
            updates = self.server_optimizer.step(updates)
        return moved(model, updates)
