"""EDEN, and DRIVE, which is EDEN with one bit: quantisation after a random rotation.

S. Vargaftik et al.: EDEN: Communication-Efficient and Robust Distributed Mean Estimation for
Federated Learning. ICML 2022, arXiv 2108.08842. The server sends the full model.
"""

from pydantic.dataclasses import dataclass

from .codec import Codec
from .compressed_server import CompressedStrategy
from .compression.error_feedback import NoFeedback
from .compression.float32 import Float32
from .compression.rotated import Bits, Rotated


@dataclass(kw_only=True, eq=False)
class EDEN(CompressedStrategy):
    """EDEN: clients rotate their updates at random and send one to four bits an entry.

    There is no error feedback: the mean over clients and rounds has no error to feed back.

    Args:
        bits: Bits per entry, from 1 (DRIVE) to 4.

    The others are those of `CompressedStrategy`.
    """

    bits: Bits = 1

    def make_codec(self) -> Codec:
        """Return how server and clients compress."""
        return Codec(Rotated(self.bits), Float32(), NoFeedback())
