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

# The server's control variate in a message, and the change of the client's in a reply; the entry
# that names the client's last accepted round.
VARIATE, ACCEPTED = "control-variate", "accepted-round"


@dataclass(kw_only=True, eq=False)
class SCAFFOLD(FederatedStrategy):
    """SCAFFOLD: clients step by g(y) - c_k + c; the server's variate c is the mean of the c_k.

    With x the global model and K steps at the rate eta, a client's next variate is
    c_k - c + (x - y) / (K eta). The server moves by x <- x + global_learning_rate mean(y - x) and
    c <- c + |S| / N mean(change of c_k), over the |S| of N clients whose replies were usable; a
    client keeps its next variate once the server has named its reply as accepted. Messages are
    twice as large as FedAvg's, both ways. A client that loses its state begins with c_k = 0, while
    the server's c still has its part. In another app the clients' handler must add the record
    "gradient-offset" to every gradient.

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
        """Train by g(y) - c_k + c; send the change of c_k beside the model."""
        memory.check_round(received)
        assert received.model is not None
        x, sent = received.model.vector.astype(float), received.vectors[VARIATE]
        server = sent.astype(float)
        accepted = int(str(received.entries[ACCEPTED]))

        def take(own: Vectors, change: bytes) -> Vectors:
            return {VARIATE: own[VARIATE] + np.frombuffer(change, sent.dtype)}

        c = memory.settled(accepted, take).get(VARIATE, np.zeros_like(server))
        update = train(received.model, {GRADIENT_OFFSET: (server - c).astype(sent.dtype)})
        assert update.model is not None
        y = update.model.vector.astype(float)
        length = step_length(received.settings, update.num_examples)
        change = (difference(x, y) / length - server).astype(sent.dtype)
        kept = ClientMemory(received.number, {VARIATE: c}, change.tobytes())
        return replace(update, vectors={VARIATE: change}), kept

    def read(self, now: Round, reply: Reply) -> Terms:
        """Return y and the change of c_k."""
        return reply.vector, reply.vector_of(VARIATE)

    def update_norm(self, now: Round, terms: Terms, reply: Reply) -> float:
        """Return the larger of the norms of y - x and K eta (c + the change of c_k).

        An honest client's second is (y - x), so that the bound on the update bounds the change,
        too.
        """
        assert self.variate is not None
        explained = reply.vector_of(VARIATE) + self.variate
        length = step_length(now.config, reply.report.num_examples)
        return max(change_norm(reply.vector, now.model.vector), length * change_norm(explained))

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
        return self.bits_up(now, node)

    def bits_up(self, now: Round, node: int) -> float:
        """Return the same."""
        return 32.0 * (now.model.size + now.model.layout.size)

    def forget_clients(self) -> None:
        """Begin with no variates, as the clients do."""
        self.variate, self._accepted = None, {}


def step_length(config: Mapping[str, Any], num_examples: float) -> float:
    """Return K eta of a client with this many examples."""
    return step_count(config, num_examples) * float(config["learning-rate"])
