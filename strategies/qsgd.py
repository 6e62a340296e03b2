"""QSGD: stochastic uniform quantisation of the clients' updates.

D. Alistarh et al.: QSGD: Communication-Efficient SGD via Gradient Quantization and Encoding.
NeurIPS 2017, arXiv 1610.02132. The server sends the full model.
"""

from pydantic.dataclasses import dataclass

from .codec import Codec
from .compressed_server import CompressedStrategy
from .compression.error_feedback import NoFeedback
from .compression.float32 import Float32
from .compression.quantized import Bits, Norm, Quantized
from .registry import Count


@dataclass(kw_only=True, eq=False)
class QSGD(CompressedStrategy):
    """QSGD: clients send every entry as a sign and one of few levels, drawn without bias.

    There is no error feedback: the mean over clients and rounds has no error to feed back.

    Args:
        bits: Bits per entry, from 2 to 8.
        bucket: How many entries share a norm.
        norm: "l2", the paper's, or "max", the largest magnitude.

    The others are those of `CompressedStrategy`.
    """

    bits: Bits = 4
    bucket: Count = 512
    norm: Norm = "l2"

    def make_codec(self) -> Codec:
        """Return how server and clients compress."""
        return Codec(Quantized(self.bits, self.bucket, self.norm), Float32(), NoFeedback())
