"""Top-k sparsification, "gradient dropping": one of the methods that STC is compared to.

A. F. Aji, K. Heafield: Sparse Communication for Distributed Gradient Descent. EMNLP 2017, arXiv
1704.05021; as in Sattler et al. 2020, without momentum correction, clipping or warm-up.
"""

from flwr.app import ConfigRecord, Context, Message
from flwr.clientapp.typing import ClientAppCallable

from strategies.compressed_client import Codec, train_compressed
from strategies.compression.dense import Dense
from strategies.compression.layout import Layout
from strategies.compression.sparse import Sparse, sparsify
from strategies.compression.theory import dense_bits, sparse_bits
from strategies.compression.update import Update, Vector
from strategies.sparsifying import SparsifyingStrategy, client_settings


class TopK(SparsifyingStrategy):
    """Top-k: clients send their largest entries as they are, with error feedback.

    With sparsity-down = 1, the default, the server sends all: clients download the full model. A
    smaller one makes the server's updates sparse too.
    """

    def __init__(
        self,
        sparsity_up: float = 1 / 100,
        sparsity_down: float = 1.0,
        scope: str = "tensor",
        weights: str = "uniform",
    ) -> None:
        super().__init__(sparsity_up, sparsity_down, scope, weights)

    def compress(self, total: Vector) -> Update:
        """Return the largest entries of the total; all of it where the sparsity is 1."""
        if self.sparsity_down == 1:
            return Dense(total)
        return sparsify(total, self.sparsity_down, self.layout.blocks(self.scope))

    def decode_update(self, data: bytes) -> Update:
        """Return a client's sparse update.

        Raises:
            CodecError: The bytes are none.
        """
        return Sparse.decode(data, self.layout.size, self.most_from_client())

    def theory_update_bits(self) -> tuple[float, float]:
        """Return n * p positions with a float32 each; downstream that, or n float32."""
        size = self.layout.size
        dense = self.sparsity_down == 1
        down = dense_bits(size) if dense else sparse_bits(size, self.sparsity_down)
        return sparse_bits(size, self.sparsity_up), down

    @staticmethod
    def client_mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """Send sparse updates, with the client's residual."""
        return train_compressed(message, context, call_next, CODEC)


def _compress(update: Vector, layout: Layout, config: ConfigRecord) -> Sparse:
    return sparsify(update, *client_settings(layout, config))


def _decode(data: bytes, layout: Layout, config: ConfigRecord) -> Sparse:
    del config
    return Sparse.decode(data, layout.size)


CODEC = Codec(_compress, _decode)
