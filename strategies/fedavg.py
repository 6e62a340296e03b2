"""Federated averaging.

H. B. McMahan, E. Moore, D. Ramage, S. Hampson, B. Agüera y Arcas: Communication-Efficient Learning
of Deep Networks from Decentralized Data. AISTATS 2017, arXiv 1602.05629v4, Algorithm 1:

    server, in every round t
        m   <- max(C K, 1),  S_t <- m random clients        the app's cohort
        for each client k in S_t: w_k <- ClientUpdate(k, w)
        m_t <- sum_k n_k,    w <- sum_k (n_k / m_t) w_k     `FedAvg.read` and `FedAvg.step`
    ClientUpdate(k, w), on client k                         the task's training
        for each of E epochs, for each batch b of B examples: w <- w - eta grad l(w; b)
"""

from pydantic.dataclasses import dataclass

from . import server_optimizer as server_optimizers
from .base import Aggregate, FederatedStrategy, Reply, Round, Terms, Vector, difference
from .registry import Part


@dataclass(kw_only=True, eq=False)
class FedAvg(FederatedStrategy):
    """FedAvg: clients train E epochs locally; the next model is w <- sum_k (n_k / n) w_k.

    Args:
        weights: "samples" weights clients by n_k, "uniform" equally.
        server_optimizer: Turns the clients' mean change into the change of the model: "none",
            "sgd", "adam" or "yogi", or a table with arguments (`strategies.server_optimizer`).

    The others are those of Flower's `FedAvg`.
    """

    server_optimizer: Part = server_optimizers.NONE

    def __post_init__(self) -> None:
        self.optimizer = server_optimizers.build(self.server_optimizer)

    def read(self, now: Round, reply: Reply) -> Terms:
        """Return the client's model w_k."""
        return (reply.vector,)

    def step(self, now: Round, aggregate: Aggregate) -> Vector:
        """Return the weighted mean of w_k, passed through the server optimiser if there is one."""
        mean = aggregate.mean
        if self.optimizer is None:
            return mean
        change = difference(mean.astype(now.model.layout.dtype), now.model.vector, float)
        return now.model.vector + self.optimizer.step(change)
