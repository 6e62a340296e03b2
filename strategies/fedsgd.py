"""Federated SGD: the large-batch baseline of the FedAvg paper (arXiv 1602.05629v4, section 2).

"We select a C-fraction of clients on each round, and compute the gradient of the loss over all the
data held by these clients": B = infinity and E = 1 at any C; C = 1 is full-batch gradient descent.
"""

from typing import ClassVar

from .base import Aggregate, Reply, Round, Terms, Vector, change_norm
from .fedavg import FedAvg


class FedSGD(FedAvg):
    """FedSGD: clients send gradients g_k; the server steps w <- w - eta * sum_k (n_k / n) g_k.

    g_k is the gradient of the mean loss over all local examples, so the config's local epochs,
    steps and batch size have no effect; eta is the round's "learning-rate". With momentum m clients
    send v_k <- m v_k + g_k instead. In another app clients need a handler `@app.train("gradient")`.

    The arguments are those of `strategies.fedavg.FedAvg`; a server optimiser turns the step into
    the change of the model.
    """

    train_type: ClassVar[str] = "train.gradient"
    local_work: ClassVar[str] = "one gradient over all its examples"
    needs: ClassVar[tuple[str, ...]] = ("learning-rate",)

    def update_norm(self, now: Round, terms: Terms, reply: Reply) -> float:
        """Return the norm of the gradient."""
        return change_norm(reply.vector)

    def step(self, now: Round, aggregate: Aggregate) -> Vector:
        """Return w - eta * sum_k (n_k / n) g_k.

        A server optimiser steps by -eta times the mean gradient instead.
        """
        dtype = now.model.layout.dtype
        change = -float(now.config["learning-rate"]) * aggregate.mean.astype(dtype).astype(float)
        if self.optimizer is not None:
            change = self.optimizer.step(change)
        return now.model.vector + change
