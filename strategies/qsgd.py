"""QSGD: stochastic uniform quantisation of the clients' updates.

D. Alistarh et al.: QSGD: Communication-Efficient SGD via Gradient Quantization and Encoding.
NeurIPS 2017, arXiv 1610.02132. The server's updates are sent as they are.
"""

from collections.abc import Mapping
from typing import Any

from strategies.compressed_server import CompressedStrategy
from strategies.compression.error_feedback import NoFeedback
from strategies.compression.float32 import Float32
from strategies.compression.quantized import Quantized
from strategies.server_optimizer import NONE


class QSGD(CompressedStrategy):
    """QSGD: clients send every entry as a sign and one of few levels, drawn without bias.

    There is no error feedback: the mean over clients and rounds has no error to feed back.

    Args:
        bits: Of an entry, from 2 to 8.
        bucket: The entries that share a norm.
        norm: "l2", the paper's, or "max", the largest magnitude.
        weights: How clients count in the mean: "uniform" or "samples", n_k.
        server_optimizer: Turns the mean update into the change of the model: "none", "sgd", "adam"
            or "yogi", or a table with arguments (`strategies.server_optimizer`).

    Raises:
        ValueError: An argument is out of its range.
    """

    def __init__(
        self,
        bits: int = 4,
        bucket: int = 512,
        norm: str = "l2",
        weights: str = "uniform",
        server_optimizer: str | Mapping[str, Any] = NONE,
    ) -> None:
        super().__init__(
            Quantized(bits, bucket, norm),
            Float32(),
            feedback=NoFeedback(),
            weights=weights,
            server_optimizer=server_optimizer,
        )
