"""SCAFFOLD: control variates correct the drift of clients with unlike data.

S. P. Karimireddy, S. Kale, M. Mohri, S. J. Reddi, S. U. Stich, A. T. Suresh: SCAFFOLD: Stochastic
Controlled Averaging for Federated Learning. ICML 2020, arXiv 1910.06378, Algorithm 1, option II.
"""

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic.dataclasses import dataclass

from .base import (
    Aggregate,
    Broadcast,
    ClientMemory,
    FederatedStrategy,
    Received,
    Reply,
    Round,
    Terms,
    Train,
    Update,
    Vector,
    Vectors,
    change_norm,
    difference,
)
from .fednova import step_count
from .registry import Positive, Weights
from .rounds.messages import GRADIENT_OFFSET

# The server's control variate in a message, and the entry that names the client's last accepted
# round.
VARIATE, ACCEPTED = "control-variate", "accepted-round"


@dataclass(kw_only=True, eq=False)
class SCAFFOLD(FederatedStrategy):
    """SCAFFOLD: clients step by g(y) - c_k + c; the server's variate c is the mean of the c_k.

    With x the global model and K steps at the rate eta, a client's next variate is
    c_k - c + (x - y) / (K eta). The server moves by x <- x + global_learning_rate mean(y - x) and
    c <- c + |S| / N mean(change of c_k), over the |S| of N clients whose replies were usable; a
    client keeps its next variate once the server has named its reply as accepted. The change of c_k
    follows from x, y, c and K eta, which the server has, so that clients send their models only
    (X. Huang, P. Li, X. Li: Stochastic Controlled Averaging for Federated Learning with
    Communication Compression. ICLR 2024, arXiv 2308.08165, do so with a compressed change);
    messages to clients are twice as large as FedAvg's. A client that loses its state begins with
    c_k = 0, while the server's c still has its part. In another app the clients' handler must add
    the record "gradient-offset" to every gradient.

    Args:
        global_learning_rate: eta_g, of the server.

    The others are those of Flower's `FedAvg`.
    """

    plain_sgd: ClassVar[bool] = True
    needs: ClassVar[tuple[str, ...]] = ("learning-rate", "batch-size")

    global_learning_rate: Positive = 1.0
    weights: Weights = field(default="uniform", init=False)

    def __post_init__(self) -> None:
        self.variate: NDArray[np.float64] | None = None
        self._sent: Mapping[str, Vector] = {}
        self._accepted: dict[int, int] = {}  # by node, its last accepted round

    def begin(self, now: Round) -> None:
        """Begin with the variate zero."""
        if self.variate is None:
            self.variate = np.zeros(now.model.layout.size)
            self._sent = {VARIATE: now.model.layout.rounded(self.variate)}

    def broadcast(self, now: Round, node: int) -> Broadcast:
        """Return the model with c, and the node's last accepted round."""
        return Broadcast({ACCEPTED: self._accepted.get(node, 0)}, vectors=self._sent)

    def client(
        self, received: Received, memory: ClientMemory, train: Train
    ) -> tuple[Update, ClientMemory]:
        """Train by g(y) - c_k + c; keep the change of c_k until the server has accepted it."""
        memory.check_round(received)
        assert received.model is not None
        sent = received.vectors[VARIATE]
        server = sent.astype(float)
        accepted = int(str(received.entries[ACCEPTED]))

        def take(own: Vectors, change: bytes) -> Vectors:
            return {VARIATE: own[VARIATE] + np.frombuffer(change, sent.dtype)}

        c = memory.settled(accepted, take).get(VARIATE, np.zeros_like(server))
        update = train(received.model, {GRADIENT_OFFSET: (server - c).astype(sent.dtype)})
        assert update.model is not None
        length = step_length(received.settings, update.num_examples)
        change = variate_change(received.model.vector, update.model.vector, sent, length)
        kept = ClientMemory(received.number, {VARIATE: c}, change.tobytes())
        # The empty payload is one that Flower's wrappers refuse: clipped here, y would no longer
        # give the server the client's own change.
        return replace(update, payload=b""), kept

    def read(self, now: Round, reply: Reply) -> Terms:
        """Return y and the change of c_k, as the client computes it."""
        length = step_length(now.config, reply.report.num_examples)
        sent = self._sent[VARIATE]
        return reply.vector, variate_change(now.model.vector, reply.vector, sent, length)

    def update_norm(self, now: Round, terms: Terms, reply: Reply) -> float:
        """Return the norm of y - x, which bounds the change of c_k, too."""
        return change_norm(reply.vector, now.model.vector)

    def step(self, now: Round, aggregate: Aggregate) -> Vector:
        """Return the next model; the server's variate moves, and the replies are accepted."""
        mean, change = aggregate.means
        number = len(aggregate.nodes)
        assert self.variate is not None
        self.variate = self.variate + number / max(now.settings.num_clients, number) * change
        self._sent = {VARIATE: now.model.layout.rounded(self.variate)}
        self._accepted |= dict.fromkeys(aggregate.nodes, now.number)
        if (rate := self.global_learning_rate) == 1:
            return mean
        x = now.model.vector.astype(float)
        moved: Vector = x + rate * difference(mean.astype(now.model.layout.dtype), x)
        return moved

    def bits_down(self, now: Round, node: int) -> float:
        """Return 32 bits for each entry of the model and of the variate."""
        return 32.0 * (now.model.size + now.model.layout.size)

    def forget_clients(self) -> None:
        """Begin with no variates, as the clients do."""
        self.variate, self._accepted = None, {}


def variate_change(x: Vector, y: Vector, c: Vector, length: float) -> Vector:
    """Return -c + (x - y) / (K eta), the change of a client's variate, in the dtype of c."""
    change: Vector = (difference(x.astype(float), y.astype(float)) / length - c).astype(c.dtype)
    return change


def step_length(config: Mapping[str, Any], num_examples: float) -> float:
    """Return K eta of a client with this many examples."""
    return step_count(config, num_examples) * float(config["learning-rate"])
