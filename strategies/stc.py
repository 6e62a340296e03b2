"""Sparse ternary compression.

F. Sattler, S. Wiedemann, K.-R. Müller, W. Samek: Robust and Communication-Efficient Federated
Learning from Non-IID Data. IEEE TNNLS 31(9), 2020, arXiv 1903.02891, Algorithms 1 to 4.
"""

from flwr.app import ConfigRecord, Context, Message
from flwr.clientapp.typing import ClientAppCallable

from strategies.compressed_client import Codec, train_compressed
from strategies.compression.layout import Layout
from strategies.compression.ternary import Ternary, ternarise
from strategies.compression.theory import ternary_bits
from strategies.compression.update import Update, Vector
from strategies.sparsifying import SparsifyingStrategy, client_settings


class STC(SparsifyingStrategy):
    """STC: sparse ternary updates with error feedback, up and down.

    An entry is sent as its position and sign, with one magnitude mu per scope. The paper takes one
    local step a round ("local-steps = 1") and p = 1/400, 1/100 or 1/25 in both directions.
    """

    def __init__(
        self,
        sparsity_up: float = 1 / 400,
        sparsity_down: float = 1 / 400,
        scope: str = "tensor",
        weights: str = "uniform",
    ) -> None:
        super().__init__(sparsity_up, sparsity_down, scope, weights)

    def compress(self, total: Vector) -> Update:
        """Return the largest entries of the total, ternarised."""
        return ternarise(total, self.sparsity_down, self.layout.blocks(self.scope))

    def decode_update(self, data: bytes) -> Update:
        """Return a client's ternary update.

        Raises:
            CodecError: The bytes are none.
        """
        return Ternary.decode(data, self.layout.blocks(self.scope), self.most_from_client())

    def theory_update_bits(self) -> tuple[float, float]:
        """Return the expected Golomb code of n * p positions with a sign each, up and down."""
        size = self.layout.size
        return ternary_bits(size, self.sparsity_up), ternary_bits(size, self.sparsity_down)

    @staticmethod
    def client_mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """Send sparse ternary updates, with the client's residual."""
        return train_compressed(message, context, call_next, CODEC)


def _compress(update: Vector, layout: Layout, config: ConfigRecord) -> Ternary:
    return ternarise(update, *client_settings(layout, config))


def _decode(data: bytes, layout: Layout, config: ConfigRecord) -> Ternary:
    return Ternary.decode(data, client_settings(layout, config)[1])


CODEC = Codec(_compress, _decode)
