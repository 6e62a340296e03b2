"""EDEN, and DRIVE, which is EDEN with one bit: quantisation after a random rotation.

S. Vargaftik et al.: EDEN: Communication-Efficient and Robust Distributed Mean Estimation for
Federated Learning. ICML 2022, arXiv 2108.08842. The server's updates are sent as they are.
"""

from collections.abc import Mapping
from typing import Any

from strategies.compressed_server import CompressedStrategy
from strategies.compression.error_feedback import NoFeedback
from strategies.compression.float32 import Float32
from strategies.compression.rotated import Rotated
from strategies.server_optimizer import NONE


class EDEN(CompressedStrategy):
    """EDEN: clients rotate their updates at random and send one to four bits an entry.

    There is no error feedback: the mean over clients and rounds has no error to feed back.

    Args:
        bits: Of an entry, from 1 (DRIVE) to 4.
        weights: How clients count in the mean: "uniform" or "samples", n_k.
        server_optimizer: Turns the mean update into the change of the model: "none", "sgd", "adam"
            or "yogi", or a table with arguments (`strategies.server_optimizer`).

    Raises:
        ValueError: An argument is out of its range.
    """

    def __init__(
        self,
        bits: int = 1,
        weights: str = "uniform",
        server_optimizer: str | Mapping[str, Any] = NONE,
    ) -> None:
        super().__init__(
            Rotated(bits),
            Float32(),
            feedback=NoFeedback(),
            weights=weights,
            server_optimizer=server_optimizer,
        )
