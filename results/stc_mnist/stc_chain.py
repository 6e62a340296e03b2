"""What a client that missed some rounds of STC downloads: the updates one by one, or their sum.

Trains logistic regression on MNIST with STC (p = 1/400, one local step) and takes the last updates
of the server: their bytes as they are sent, one after the other, and the bytes of their sum, whose
entries have no common magnitude any more and are sent as float32.

    python -m results.stc_mnist.stc_chain --data-dir /path/to/mnist
"""

import argparse

import numpy as np

from fedavg_app.config import RunConfig
from results.disturbed import DisturbedGrid, train
from strategies.compression.compressor import Compressor
from strategies.compression.decoded_update import Update, Vector
from strategies.compression.sparse import Sparse
from strategies.compression.sync_protocol import ModelUpdate
from strategies.compression.vector_layout import Layout
from strategies.stc import STC

MISSED = (1, 5, 10, 20, 50)


class Recorder(Compressor):
    """Compresses as another compressor does, and keeps what it encoded.

    Attributes:
        encoded: All updates so far, as bytes.
        layout: Their layout.
    """

    def __init__(self, compressor: Compressor) -> None:
        self._compressor = compressor
        self.encoded: list[bytes] = []
        self.layout = Layout((), ())

    def encode(self, vector: Vector, layout: Layout, rng: np.random.Generator) -> bytes:
        """Return the other compressor's bytes."""
        self.layout = layout
        self.encoded.append(self._compressor.encode(vector, layout, rng))
        return self.encoded[-1]

    def decode(self, data: bytes, layout: Layout) -> Update:
        """Return the update that the bytes encode."""
        return self._compressor.decode(data, layout)

    def expected_bits(self, size: int) -> float:
        """Return the other compressor's formula."""
        return self._compressor.expected_bits(size)


def main() -> None:
    """Print a line per number of missed updates."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data-dir", default="", help="canonical MNIST files; else the default")
    parser.add_argument("--rounds", type=int, default=400, help=f"at least {max(MISSED)}")
    given = parser.parse_args()
    print(f"{'partition':>10} {'missed':>7} {'updates':>7} {'sum':>7}  bytes")
    for partition in ("iid", "classes"):
        values = {
            "task": "mnist-logistic", "strategy": "stc", "num-clients": 100, "local-steps": 1,
            "batch-size": 20,
            "learning-rate": 0.04, "num-server-rounds": given.rounds,
            "evaluate-every": given.rounds, "target-accuracy": 0.0, "partition": partition,
            "data-dir": given.data_dir,
        }  # fmt: skip
        strategy = STC()
        recorder = Recorder(strategy.downlink)
        strategy.downlink = recorder
        train(DisturbedGrid(RunConfig(**values)), strategy)
        layout = recorder.layout
        for missed in MISSED:
            last = recorder.encoded[-missed:]
            one_by_one = sum(len(ModelUpdate(1, data)) for data in last)
            total = np.sum([recorder.decode(data, layout).to_dense() for data in last], axis=0)
            at_once = len(Sparse(sparsity=1.0).encode(total, layout, np.random.default_rng()))
            print(f"{partition:>10} {missed:>7} {one_by_one:>7,} {at_once:>7,}")


if __name__ == "__main__":
    main()
