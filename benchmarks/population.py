"""The cost of a round for populations of 100 to 100,000 clients, with STC.

    python -m benchmarks.population --data-dir /path/to/mnist [--clients 100 10000] [--repeats 3]
    python -m benchmarks.population --synthetic

The first command: logistic regression on MNIST, 100 participants a round, each with one step of 5
examples (of 10,000 clients each has 6). The populations run in turn, so that the machine's drift
concerns all. The second: 100,000 clients of a made-up task with 1,000 participants a round.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.background import repeatedly
from benchmarks.engine import MARK, ROOT, SAMPLE_SECONDS, Memory
from fedavg_app.callbacks.run_directory import HISTORY_FILE

# The first rounds, which are not counted.
SKIPPED = 5
MNIST = ["--task", "mnist-logistic", "--local-steps", "1", "--batch-size", "5"]
SYNTHETIC = ["--task", "benchmarks.synthetic:TASK", "--local-epochs", "1", "--batch-size", "0"]


@dataclass(frozen=True)
class Cost:
    """What a run took.

    Attributes:
        seconds: Those of the median round.
        peak: GiB of memory of all processes, at most.
    """

    seconds: float
    peak: float


def run(clients: int, participants: int, rounds: int, options: Sequence[str]) -> Cost:
    """Run a simulation and return what it took."""
    mark = f"population-{os.getpid()}"
    memory = Memory(mark)
    with tempfile.TemporaryDirectory() as runs:
        command = [
            sys.executable, "simulation.py", "run", "--strategy", "stc", "--run-dir", runs,
            "--num-server-rounds", str(rounds), "--target-accuracy", "0",
            "--evaluate-every", str(rounds), "--num-clients", str(clients),
            "--fraction-train", str(participants / clients), *options,
        ]  # fmt: skip
        with repeatedly(memory.look, SAMPLE_SECONDS):
            subprocess.run(
                command, cwd=ROOT, env={**os.environ, MARK: mark}, check=True,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
        (history,) = Path(runs).glob(f"*/{HISTORY_FILE}")
        seconds = [json.loads(line)["seconds"] for line in history.read_text().splitlines()]
    median = statistics.median(seconds[1 + SKIPPED :])
    return Cost(median, memory.peak)


def compare_populations(clients: Sequence[int], rounds: int, repeats: int, data_dir: str) -> None:
    """Print a line for each population."""
    participants = min(clients)
    options = [*MNIST, "--data-dir", data_dir]
    found: dict[int, list[Cost]] = {count: [] for count in clients}
    for _ in range(repeats):
        for count in clients:
            found[count].append(run(count, participants, rounds, options))
    reference = statistics.median(cost.seconds for cost in found[clients[0]])
    for count, costs in found.items():
        seconds = statistics.median(cost.seconds for cost in costs)
        print(
            f"{count:>7} clients, {participants} a round: {seconds * 1e3:.1f} ms a round "
            f"({seconds / reference:.2f}x), peak {max(cost.peak for cost in costs):.2f} GiB"
        )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--data-dir", help="the folder of MNIST")
    what.add_argument("--synthetic", action="store_true", help="100,000 clients of a made-up task")
    parser.add_argument(
        "--clients", type=int, nargs="+", default=[100, 1_000, 10_000], help="of MNIST"
    )
    parser.add_argument("--rounds", type=int, default=60, help=f"more than {SKIPPED}")
    parser.add_argument("--repeats", type=int, default=2, help="of MNIST")
    chosen = parser.parse_args()
    if not chosen.synthetic:
        folder = str(Path(chosen.data_dir).resolve())
        compare_populations(chosen.clients, chosen.rounds, chosen.repeats, folder)
        return
    clients, participants = 100_000, 1_000
    cost = run(clients, participants, chosen.rounds, SYNTHETIC)
    print(
        f"{clients:>7} clients, {participants} a round: {cost.seconds:.2f} s a round, "
        f"peak {cost.peak:.2f} GiB"
    )


if __name__ == "__main__":
    main()
