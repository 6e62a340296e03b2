"""Does ternarisation collapse where the server sends more than clients sent it?

In the STC paper's heatmap of sparsities (VGG11*, 5 clients, non-IID) pure sparsification and
ternarisation differ by two points or so, except where p is 0.04 down and 0.001 or 0.002 up: there
the ternary runs lose 61 and 34 points. In these cells the server's p exceeds the union of what the
clients sent, so its k-th largest entry is 0, and the authors' operator (entries >= v become mu,
then entries <= -v become -mu) turns every zero into -mu. This runs those cells, and one beside
them, on MNIST-2NN with pure sparsification, with our operator, which leaves zeros alone, with the
paper's formula for mu (the sum over k although fewer were kept), and with the authors' operator.

    python -m results.stc_mnist.ternary_collapse --data-dir /path/to/mnist --rounds 1000
"""

import argparse
from abc import abstractmethod
from typing import Any

import numpy as np

from fedavg_app.config import RunConfig
from fedavg_app.server.run_components import resolve
from results.disturbed import DisturbedGrid, train
from strategies.compression.decoded_update import DenseUpdate, Vector
from strategies.compression.float32 import Float32
from strategies.compression.largest_entries import keep_count
from strategies.compression.ternary import Ternary
from strategies.compression.vector_layout import Layout

MODULE = "results.stc_mnist.ternary_collapse"
# Compressors: the clients' and the server's, by the name of the operator.
OPERATORS = {
    "sparse": ("sparse", "sparse"),
    "ternary": ("ternary", "ternary"),
    "mu over k": ("ternary", f"{MODULE}:PapersOperator"),
    "authors'": ("ternary", f"{MODULE}:AuthorsOperator"),
}


class DenseTernary(Ternary):
    """Ternary compression that may set any entry, so that the update is sent as float32."""

    def encode(self, vector: Vector, layout: Layout, rng: np.random.Generator) -> bytes:
        """Return 4 bytes an entry."""
        blocks = np.split(vector, np.cumsum(layout.blocks(self.scope))[:-1])
        ternary = [self.ternarize(block, keep_count(len(block), self.sparsity)) for block in blocks]
        return Float32().encode(np.concatenate(ternary), layout, rng)

    def decode(self, data: bytes, layout: Layout) -> DenseUpdate:  # type: ignore[override]
        """Return the update that the bytes encode."""
        return Float32().decode(data, layout)

    @abstractmethod
    def ternarize(self, block: Vector, k: int) -> Vector:
        """Return the block with entries of -mu, 0 and mu."""


class PapersOperator(DenseTernary):
    """Algorithm 1 of the paper, read literally: mu divides by k where fewer entries are kept."""

    def ternarize(self, block: Vector, k: int) -> Vector:
        """Return the block with entries of -mu, 0 and mu."""
        threshold = np.sort(np.abs(block))[-k]
        masked = np.where(np.abs(block) >= threshold, block, 0)
        return (np.abs(masked).sum() / k * np.sign(masked)).astype(np.float32)


class AuthorsOperator(DenseTernary):
    """The authors' code: where the threshold is 0, every zero becomes -mu."""

    def ternarize(self, block: Vector, k: int) -> Vector:
        """Return the block with entries of -mu, 0 and mu."""
        largest = np.sort(np.abs(block))[-k:]
        up = np.where(block >= largest[0], largest.mean(), 0)
        return np.where(block <= -largest[0], -largest.mean(), up).astype(np.float32)


def accuracy(operator: str, up: float, down: float, rounds: int, **keys: Any) -> float:
    """Return the best test accuracy of one run, tested ten times."""
    uplink, downlink = OPERATORS[operator]
    values = {
        "task": "mnist-2nn", "num-clients": 5, "fraction-train": 1.0, "local-steps": 1,
        "batch-size": 20, "num-server-rounds": rounds,
        "evaluate-every": max(rounds // 10, 1), "target-accuracy": 0.0,
        "strategy": "compressed",
        "strategy-args": (
            f'uplink = {{name = "{uplink}", sparsity = {up}}}, '
            f'downlink = {{name = "{downlink}", sparsity = {down}}}'
        ),
        **keys,
    }  # fmt: skip
    config = RunConfig(**values)
    _, result = train(DisturbedGrid(config), resolve(config).strategy)
    return max(metrics.accuracy or 0.0 for metrics in result.history[1:])


def main() -> None:
    """Print a table of accuracies, each row when it is done."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data-dir", default="", help="canonical MNIST files; else the default")
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--momentum", type=float, default=0.0)
    parser.add_argument("--learning-rate", type=float, default=0.05)
    given = parser.parse_args()
    partitions = {
        "2 classes": {"partition": "classes", "partition-args": "classes-per-client = 2"},
        "IID": {"partition": "iid"},
    }
    print(f"best accuracy in {given.rounds} rounds, MNIST-2NN, 5 clients", flush=True)
    row = "{:>10} {:>6} {:>6}" + " {:>10}" * len(OPERATORS)
    print(row.format("partition", "up", "down", *OPERATORS), flush=True)
    for name, keys in partitions.items():
        for up, down in ((0.001, 0.04), (0.002, 0.04), (0.001, 0.01)):
            found = [
                accuracy(
                    operator, up, down, given.rounds,
                    **{"data-dir": given.data_dir, "momentum": given.momentum,
                       "learning-rate": given.learning_rate, **keys},
                )
                for operator in OPERATORS
            ]  # fmt: skip
            print(row.format(name, up, down, *(f"{value:.4f}" for value in found)), flush=True)


if __name__ == "__main__":
    main()
