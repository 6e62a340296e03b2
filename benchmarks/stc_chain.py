"""What a client that missed some rounds of STC downloads: the updates one by one, or their sum.

Trains logistic regression on MNIST with STC (p = 1/400, one local step) and takes the last updates
of the server: their bytes as the chain that is sent, and the bytes of their sum, whose entries have
no common magnitude any more and are sent as float32.

    python -m benchmarks.stc_chain --data-dir /path/to/mnist
"""

import argparse

import numpy as np

from benchmarks.stc_disturbed import DisturbedGrid, train
from fedavg_app.config import RunConfig
from strategies.compression.sparse import Sparse
from strategies.compression.update import Update
from strategies.stc import STC
from strategies.synced import Entry


class RecordingSTC(STC):
    """STC that keeps the updates it sends."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[Update] = []

    def compress(self, total: np.ndarray) -> Update:
        """Do as STC does, and keep what is sent."""
        self.sent.append(super().compress(total))
        return self.sent[-1]


def main() -> None:
    """Print a line per number of missed updates."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data-dir", default="", help="canonical MNIST files; else the default")
    parser.add_argument("--rounds", type=int, default=400)
    given = parser.parse_args()
    print(f"{'partition':>10} {'missed':>7} {'chain':>7} {'sum':>7}  bytes")
    for partition in ("iid", "classes"):
        values = {
            "task": "mnist-logistic", "strategy": "stc", "local-steps": 1, "batch-size": 20,
            "learning-rate": 0.04, "num-server-rounds": given.rounds,
            "evaluate-every": given.rounds, "target-accuracy": 0.0, "partition": partition,
            "data-dir": given.data_dir,
        }  # fmt: skip
        strategy = RecordingSTC()
        train(DisturbedGrid(RunConfig(**values), dropped=0.0, forgetting=0.0), strategy)
        for missed in (1, 5, 10, 20, 50):
            last = strategy.sent[-missed:]
            chain = sum(len(Entry(1, update.encode())) for update in last)
            total = np.sum([update.to_dense() for update in last], axis=0)
            positions = np.flatnonzero(total)
            whole = Sparse(len(total), positions, total[positions]).encode()
            print(f"{partition:>10} {missed:>7} {chain:>7,} {len(whole):>7,}")


if __name__ == "__main__":
    main()
