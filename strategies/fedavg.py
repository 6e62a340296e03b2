"""Federated averaging.

H. B. McMahan, E. Moore, D. Ramage, S. Hampson, B. Agüera y Arcas: Communication-Efficient Learning
of Deep Networks from Decentralized Data. AISTATS 2017, arXiv 1602.05629v4, Algorithm 1.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from flwr.app import Message

from strategies import server_optimizer as server_optimizers
from strategies.aggregation import Arrays, WeightedMean, moved, without
from strategies.base import FederatedStrategy
from strategies.registry import Weights
from strategies.reply_validation import ClientUpdate, validate_arrays


class FedAvg(FederatedStrategy[Arrays]):
    """FedAvg: clients train E epochs locally; the next model is w <- sum_k (n_k / n) w_k.

    Args:
        weights: "samples" weights clients by n_k, "uniform" equally.
        server_optimizer: Turns the clients' mean change into the change of the model: "none",
            "sgd", "adam" or "yogi", or a table with arguments (`strategies.server_optimizer`).
    """

    def __init__(
        self,
        weights: Weights = "samples",
        server_optimizer: str | Mapping[str, Any] = server_optimizers.NONE,
    ) -> None:
        super().__init__()
        self.weights = weights
        self.server_optimizer = server_optimizers.build(server_optimizer)
        self.reset()

    def validate(self, reply: Message) -> ClientUpdate[Arrays]:
        """Return the client's model w_k; it must have the arrays of the model that was sent."""
        return validate_arrays(reply, self.model, self.settings.bounds, origin=self.model)

    def accumulate(self, update: ClientUpdate[Arrays]) -> None:
        """Add n_k w_k to the sum, and n_k to n."""
        weight = update.report.num_examples if self.weights == "samples" else 1.0
        self.mean.add(without(update.content, self.settings.buffers), weight)
        self.buffer_mean.add(update.content, weight)

    def finalize(self, model: Arrays) -> Arrays:
        """Return sum_k (n_k / n) w_k, or where the server optimiser steps instead."""
        new = self.mean.result()
        if self.server_optimizer is not None:
            updates = {name: np.subtract(new[name], w, dtype=float) for name, w in model.items()}
            new = moved(model, self.server_optimizer.step(updates))
        return new

    def reset(self) -> None:
        """Begin with an empty sum."""
        super().reset()
        self.mean = WeightedMean()
