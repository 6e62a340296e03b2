"""EDEN, and DRIVE, which is EDEN with one bit: quantisation after a random rotation.

S. Vargaftik et al.: EDEN: Communication-Efficient and Robust Distributed Mean Estimation for
Federated Learning. ICML 2022, arXiv 2108.08842. The server's updates are sent as they are.
"""

from strategies.compressed_server import CompressedStrategy
from strategies.compression.float32 import Float32
from strategies.compression.rotated import Rotated


class EDEN(CompressedStrategy):
    """EDEN: clients rotate their updates at random and send one to four bits an entry.

    There is no error feedback: the mean over clients and rounds has no error to feed back.

    Args:
        bits: Of an entry, from 1 (DRIVE) to 4.
        weights: How clients count in the mean: "uniform" or "samples", n_k.

    Raises:
        ValueError: An argument is out of its range.
    """

    def __init__(self, bits: int = 1, weights: str = "uniform") -> None:
        super().__init__(Rotated(bits), Float32(), error_feedback=False, weights=weights)
