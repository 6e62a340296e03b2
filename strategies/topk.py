"""Top-k sparsification, "gradient dropping": one of the methods that STC is compared to.

A. F. Aji, K. Heafield: Sparse Communication for Distributed Gradient Descent. EMNLP 2017, arXiv
1704.05021; as in Sattler et al. 2020, without momentum correction, clipping or warm-up.
"""

from collections.abc import Mapping
from typing import Any

from strategies.compressed_server import CompressedStrategy
from strategies.compression.float32 import Float32
from strategies.compression.largest_entries import check_sparsity
from strategies.compression.sparse import Sparse
from strategies.server_optimizer import NONE


class TopK(CompressedStrategy):
    """Top-k: clients send their largest entries as they are, with error feedback.

    With the default sparsity_down = 1 the server sends all entries, and clients download the full
    model. A smaller one makes the server's updates sparse too.

    Args:
        sparsity_up: p of the clients' updates: the share of entries they send.
        sparsity_down: p of the server's.
        scope: What entries are chosen from: every "tensor", or the whole "model".
        weights: How clients count in the mean: "uniform" or "samples", n_k.
        server_optimizer: Turns the mean update into the change of the model: "none", "sgd", "adam"
            or "yogi", or a table with arguments (`strategies.server_optimizer`).

    Raises:
        ValueError: An argument is out of its range.
    """

    def __init__(
        self,
        sparsity_up: float = 1 / 100,
        sparsity_down: float = 1.0,
        scope: str = "tensor",
        weights: str = "uniform",
        server_optimizer: str | Mapping[str, Any] = NONE,
    ) -> None:
        down = check_sparsity("sparsity-down", sparsity_down)
        super().__init__(
            uplink=Sparse(check_sparsity("sparsity-up", sparsity_up), scope),
            downlink=Float32() if down == 1 else Sparse(down, scope),
            weights=weights,
            server_optimizer=server_optimizer,
            client_settings={"sparsity-up": sparsity_up, "scope": scope},
        )
