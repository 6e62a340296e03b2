"""Sparse ternary compression.

F. Sattler, S. Wiedemann, K.-R. Müller, W. Samek: Robust and Communication-Efficient Federated
Learning from Non-IID Data. IEEE TNNLS 31(9), 2020, arXiv 1903.02891, Algorithms 1 to 4.
"""

from collections.abc import Mapping
from typing import Any

from strategies.compressed_server import CompressedStrategy
from strategies.compression.largest_entries import check_sparsity
from strategies.compression.ternary import Ternary
from strategies.server_optimizer import NONE


class STC(CompressedStrategy):
    """STC: sparse ternary updates with error feedback, up and down.

    The paper takes one local step a round ("local-steps = 1") and p = 1/400, 1/100 or 1/25 in both
    directions.

    Args:
        sparsity_up: p of the clients' updates: the share of entries they send.
        sparsity_down: p of the server's.
        scope: What has a magnitude of its own: every "tensor", as in the authors' code, or the
            whole "model", as in Algorithm 1.
        weights: How clients count in the mean: "uniform", the paper's, or "samples", n_k.
        server_optimizer: Turns the mean update into the change of the model: "none", "sgd", "adam"
            or "yogi", or a table with arguments (`strategies.server_optimizer`).

    Raises:
        ValueError: An argument is out of its range.
    """

    def __init__(
        self,
        sparsity_up: float = 1 / 400,
        sparsity_down: float = 1 / 400,
        scope: str = "tensor",
        weights: str = "uniform",
        server_optimizer: str | Mapping[str, Any] = NONE,
    ) -> None:
        super().__init__(
            uplink=Ternary(check_sparsity("sparsity-up", sparsity_up), scope),
            downlink=Ternary(check_sparsity("sparsity-down", sparsity_down), scope),
            weights=weights,
            server_optimizer=server_optimizer,
            client_settings={"sparsity-up": sparsity_up, "scope": scope},
        )
