"""The cost of a round for 100 to 10,000 clients, with the same number of participants and STC.

    python -m benchmarks.population --data-dir /path/to/mnist [--clients 100 10000] [--repeats 2]

The populations run in turn, so that the machine's drift concerns all. 100 clients take part in a
round, with one step of 5 examples (of 10,000 clients each has 6). The largest population runs once
more with states on disk.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.engine import MARK, ROOT, MemorySampler
from fedavg_app.callbacks.run_directory import HISTORY_FILE

# The first rounds, which are not counted.
SKIPPED = 5
PARTICIPANTS = 100


def run(clients: int, rounds: int, data_dir: str, *options: str) -> tuple[float, float]:
    """Return the median seconds of a round, and the peak memory in GiB."""
    mark = f"population-{os.getpid()}"
    with tempfile.TemporaryDirectory() as runs, MemorySampler(mark) as memory:
        command = [
            sys.executable, "simulation.py", "run", "--data-dir", data_dir, "--run-dir", runs,
            "--task", "mnist-logistic", "--strategy", "stc", "--local-steps", "1",
            "--batch-size", "5", "--num-server-rounds", str(rounds), "--target-accuracy", "0",
            "--evaluate-every", str(rounds), "--num-clients", str(clients),
            "--fraction-train", str(PARTICIPANTS / clients), *options,
        ]  # fmt: skip
        subprocess.run(
            command, cwd=ROOT, env={**os.environ, MARK: mark}, check=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        (history,) = Path(runs).glob(f"*/{HISTORY_FILE}")
        seconds = [json.loads(line)["seconds"] for line in history.read_text().splitlines()]
    return statistics.median(seconds[1 + SKIPPED :]), memory.peak


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--clients", type=int, nargs="+", default=[100, 1_000, 10_000])
    parser.add_argument("--rounds", type=int, default=60, help=f"more than {SKIPPED}")
    parser.add_argument("--repeats", type=int, default=2)
    chosen = parser.parse_args()
    data_dir = str(Path(chosen.data_dir).resolve())
    found: dict[int, list[tuple[float, float]]] = {clients: [] for clients in chosen.clients}
    for _ in range(chosen.repeats):
        for clients in chosen.clients:
            found[clients].append(run(clients, chosen.rounds, data_dir))
    reference = statistics.median(seconds for seconds, _ in found[chosen.clients[0]])
    for clients, runs in found.items():
        seconds = statistics.median(value for value, _ in runs)
        peak = max(value for _, value in runs)
        print(
            f"{clients:>6} clients, {PARTICIPANTS} a round: {seconds * 1e3:.1f} ms a round "
            f"({seconds / reference:.2f}x), peak {peak:.2f} GiB"
        )
    largest = max(chosen.clients)
    _, peak = run(largest, chosen.rounds, data_dir, "--state-memory", "10")
    print(f"{largest:>6} clients, 10 MiB of states in memory a worker: peak {peak:.2f} GiB")


if __name__ == "__main__":
    main()
