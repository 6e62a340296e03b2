"""QSGD: stochastic uniform quantisation of the clients' updates.

D. Alistarh et al.: QSGD: Communication-Efficient SGD via Gradient Quantization and Encoding.
NeurIPS 2017, arXiv 1610.02132. The server's updates are sent as they are.
"""

from strategies.compressed_server import CompressedStrategy
from strategies.compression.float32 import Float32
from strategies.compression.quantized import Quantized


class QSGD(CompressedStrategy):
    """QSGD: clients send every entry as a sign and one of few levels, drawn without bias.

    There is no error feedback: the mean over clients and rounds has no error to feed back.

    Args:
        bits: Of an entry, from 2 to 8.
        bucket: The entries that share a norm.
        norm: "l2", the paper's, or "max", the largest magnitude.
        weights: How clients count in the mean: "uniform" or "samples", n_k.

    Raises:
        ValueError: An argument is out of its range.
    """

    def __init__(
        self, bits: int = 4, bucket: int = 512, norm: str = "l2", weights: str = "uniform"
    ) -> None:
        super().__init__(
            Quantized(bits, bucket, norm), Float32(), error_feedback=False, weights=weights
        )
