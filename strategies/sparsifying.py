"""What STC and top-k share: both ends keep the largest entries of each update, and the rest.

Sattler et al. 2020, arXiv 1903.02891, section III: they differ only in what is sent of an entry.
"""

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
from flwr.app import ConfigRecord, Message

from strategies.compressed import CompressedStrategy
from strategies.compression.feedback import compress_with_feedback
from strategies.compression.layout import Layout, check_scope
from strategies.compression.topk import check_sparsity, most_kept
from strategies.compression.update import Update, Vector, mean
from strategies.weighting import check_weights, reply_weights

SPARSITY_UP, SCOPE = "sparsity-up", "scope"


class SparsifyingStrategy(CompressedStrategy):
    """Sends the largest entries in both directions, with error feedback at both ends.

    Args:
        sparsity_up: p of the clients' updates: the share of entries they send.
        sparsity_down: p of the server's.
        scope: What is compressed as one: every "tensor", as in the authors' code, or the "model".
        weights: "uniform", the paper's plain mean over participants, or "samples", n_k.

    Attributes:
        residual: The server's: what it has not sent yet, float32 (n,); None before the first round.

    Raises:
        ValueError: An argument out of its range.
    """

    def __init__(
        self,
        sparsity_up: float,
        sparsity_down: float,
        scope: str = "tensor",
        weights: str = "uniform",
    ) -> None:
        super().__init__()
        self.sparsity_up = check_sparsity("sparsity-up", sparsity_up)
        self.sparsity_down = check_sparsity("sparsity-down", sparsity_down)
        self.scope, self.weights = check_scope(scope), check_weights(weights)
        self.residual: Vector | None = None

    @abstractmethod
    def compress(self, total: Vector) -> Update:
        """Return the update of the global model that is sent for the accumulated ``total``."""

    def settings(self) -> dict[str, float | str]:
        """Return p and the scope, for the clients."""
        return {SPARSITY_UP: self.sparsity_up, SCOPE: self.scope}

    def most_from_client(self) -> int:
        """Return how many entries a client's update may have."""
        return most_kept(self.sparsity_up, self.layout.blocks(self.scope))

    def combine(self, updates: Sequence[Update], replies: Sequence[Message]) -> Update:
        """Return the clients' mean plus the server's residual, compressed; keep the rest of it."""
        if self.residual is None:
            self.residual = np.zeros(self.layout.size, np.float32)
        total = mean(updates, reply_weights(replies, self.weights))
        sent, self.residual = compress_with_feedback(total, self.residual, self.compress)
        return sent


def client_settings(layout: Layout, config: ConfigRecord) -> tuple[float, tuple[int, ...]]:
    """Return (p, the sizes of what is compressed as one) that the server's settings name.

    Raises:
        ValueError: They are missing or out of their range.
    """
    sparsity = check_sparsity(SPARSITY_UP, config.get(SPARSITY_UP))
    return sparsity, layout.blocks(check_scope(str(config.get(SCOPE))))
