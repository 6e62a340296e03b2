"""What a round of a big model costs the server, by strategy and number of weights.

    python -m benchmarks.weights [--weights 10000000] [--strategies fedavg stc] [--rounds 6]

Two clients, two workers, one local step; a new process for each run. From the end of round 1 to
that of the last round: seconds a round, and the CPU time of the driver for each participant, in
copies of the model. The most memory that the driver had, less that of a model of 100 weights, is in
models. The last columns are the CPU time of the copy, in new memory, and of zstd (level 3).
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil
import zstandard
from rich import box
from rich.console import Console
from rich.table import Table
from torch import nn

from benchmarks.codec import digits, median_seconds
from tasks.base import Task
from tasks.data.dataset import DataOptions, Dataset, Split
from tests.support.documents import ROOT

CLIENTS, SIDE = 2, "BENCHMARK_SIDE"
STRATEGIES = ("fedavg", "stc", "eden", "scaffold")


def side() -> int:
    """Return how many inputs and outputs the model has."""
    return int(os.environ[SIDE])


def load(options: DataOptions) -> Dataset:
    """Return four random examples to train with and two to test with."""
    random = np.random.default_rng(0)
    inputs = random.standard_normal((6, side()), np.float32)
    targets = random.integers(side(), size=6)
    splits = (Split(inputs[part], targets[part]) for part in (slice(4), slice(4, None)))
    return Dataset.of(*splits, options, "made up")


TASK = Task(
    "weights", lambda: nn.Linear(side(), side(), bias=False), load, lambda inputs: inputs, 0.01
)


def measure(strategy: str, width: int, rounds: int) -> tuple[float, float, int]:
    """Return a run's seconds a round, the driver's CPU seconds for a client, and its most bytes."""
    with tempfile.TemporaryDirectory(prefix="benchmark-weights-") as folder:
        command = [
            sys.executable, "simulation.py", "run", "--task=benchmarks.weights:TASK",
            f"--strategy={strategy}", f"--num-clients={CLIENTS}", "--fraction-train=1",
            f"--num-server-rounds={rounds}", f"--evaluate-every={rounds + 1}", "--local-steps=1",
            "--num-workers=2", f"--run-dir={folder}",
        ]  # fmt: skip
        environment = {**os.environ, SIDE: str(width)}
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, env=environment) as run:
            driver, ends = psutil.Process(run.pid), dict[int, tuple[float, float, int]]()
            while run.poll() is None and len(ends) < rounds + 1:
                files = Path(folder).glob("*/history.jsonl")
                last = sum(file.read_text().count("\n") for file in files) - 1
                if last >= 0 and last not in ends:
                    peak = Path(f"/proc/{run.pid}/status").read_text().split("VmHWM:")[1].split()[0]
                    times = driver.cpu_times()
                    cpu = times.user + times.system
                    ends[last] = time.monotonic(), cpu, 1024 * int(peak)
                time.sleep(0.002)
        assert run.returncode == 0, f"exit status {run.returncode}"
    (began, before, _), (ended, after, memory) = ends[1], ends[rounds]
    return (ended - began) / (rounds - 1), (after - before) / (rounds - 1) / CLIENTS, memory


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weights", type=int, nargs="+", default=[10**7])
    parser.add_argument("--strategies", nargs="+", default=STRATEGIES)
    parser.add_argument("--rounds", type=int, default=6)
    chosen = parser.parse_args()
    table = Table("weights", "strategy", box=box.MARKDOWN)
    for name in ("s a round", "driver, s a client", "copies", "memory, models", "copy", "zstd-3"):
        table.add_column(name, justify="right")
    for weights in chosen.weights:
        width = round(weights**0.5)
        for strategy in chosen.strategies:
            base = measure(strategy, 10, chosen.rounds)[2]
            a_round, cpu, memory = measure(strategy, width, chosen.rounds)
            vector = np.random.default_rng(0).standard_normal(width**2, dtype=np.float32)
            copying = median_seconds(vector.copy, time.process_time)
            packing = median_seconds(
                lambda: zstandard.ZstdCompressor(3).compress(vector),  # noqa: B023
                time.process_time,
            )
            models = f"{(memory - base) / vector.nbytes:.1f}"
            seconds = [digits(number) for number in (a_round, cpu, cpu / copying)]
            table.add_row(
                f"{width**2:,}", strategy, *seconds, models, digits(copying), digits(packing)
            )
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
