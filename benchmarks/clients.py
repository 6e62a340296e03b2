"""What a run costs by its number of clients, of which 100 take part in a round.

    python -m benchmarks.clients [--clients 1000 1000000] [--rounds 20] [KEY=VALUE ...]

Each run is a new process, on 2,000,000 examples of 4 features: seconds to the end of round 1, CPU
seconds of all processes until then, the median of a round from the third on, and the peak memory of
all processes. Further words are keys of the run, as strategy=stc.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from tasks.base import Task
from tasks.data.dataset import DataOptions, Dataset, Split
from tests.support.documents import ROOT
from tests.support.run_folders import only_folder, read_history
from tests.support.usage import measured

EXAMPLES, FEATURES, TESTED, PARTICIPANTS = 2_000_000, 4, 1000, 100


class Cost(NamedTuple):
    """Seconds and CPU seconds to the end of round 1, seconds a round, and bytes of memory."""

    start: float
    cpu: float
    a_round: float
    memory: int


def load(options: DataOptions) -> Dataset:
    """Return two classes on the two sides of a plane."""
    random = np.random.default_rng(0)
    inputs = random.standard_normal((EXAMPLES + TESTED, FEATURES), np.float32)
    targets = (inputs.sum(axis=1) > 0).astype(np.int64)
    train, test = slice(EXAMPLES), slice(EXAMPLES, None)
    splits = (Split(inputs[part], targets[part]) for part in (train, test))
    return Dataset.of(*splits, options, f"{EXAMPLES:,} made up points")


def identity(inputs: Tensor) -> Tensor:
    """Return the inputs, which are the model's already."""
    return inputs


def model() -> nn.Module:
    """Return logistic regression."""
    return nn.Linear(FEATURES, 2)


TASK = Task("points", model, load, identity, learning_rate=0.1)


def measure(clients: int, rounds: int, *keys: str) -> Cost:
    """Return the cost of a run of so many clients and rounds, with further keys."""
    with tempfile.TemporaryDirectory(prefix="benchmark-clients-") as folder:
        command = [
            sys.executable, "simulation.py", "run", "--task=benchmarks.clients:TASK",
            f"--num-clients={clients}", f"--fraction-train={PARTICIPANTS / clients}",
            f"--num-server-rounds={rounds}", "--local-steps=1", f"--run-dir={folder}",
            *(f"--{key}" for key in keys),
        ]  # fmt: skip
        started = time.monotonic()
        with (
            measured() as usage,
            subprocess.Popen(
                command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
            ) as run,
        ):
            assert run.stderr is not None
            while run.poll() is None and _rounds_of(folder) < 2:
                time.sleep(0.02)
            first, cpu = time.monotonic() - started, sum(usage.cpu.values())
            _, errors = run.communicate()
        assert run.returncode == 0, errors
        seconds = [line["seconds"] for line in read_history(only_folder(folder))[3:]]
    return Cost(first, cpu, statistics.median(seconds), usage.memory)


def _rounds_of(folder: str) -> int:
    return sum(file.read_text().count("\n") for file in Path(folder).glob("*/history.jsonl"))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("keys", nargs="*", metavar="KEY=VALUE")
    parser.add_argument(
        "--clients", type=int, nargs="+", default=[1000, 10_000, 100_000, 1_000_000]
    )
    parser.add_argument("--rounds", type=int, default=20)
    chosen = parser.parse_args()
    table = Table("clients", "s to the end of round 1", "CPU s", "s a round", "peak memory, GB")
    for clients in chosen.clients:
        cost = measure(clients, chosen.rounds, *chosen.keys)
        table.add_row(
            f"{clients:,}",
            f"{cost.start:.1f}",
            f"{cost.cpu:.1f}",
            f"{cost.a_round:.4f}",
            f"{cost.memory / 1e9:.2f}",
        )
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
