"""Seconds from a command to round 1, and to its end.

    python -m benchmarks.start [--repeats 5] [--checkouts . ../before]

`simulation.py run` trains the embedded MNIST's logistic regression for one round. Run it on a quiet
machine. Several checkouts run in turn. Printed are the medians and ranges of the time of round 1's
line and of the command's end.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

RUN = (
    "simulation.py", "run", "--task=mnist-logistic", "--data-source=embedded",
    "--num-server-rounds=1", "--target=none",
)  # fmt: skip


def measure(folder: Path) -> tuple[float, float]:
    """Return the seconds until the line of round 1 is printed, and until the command has ended."""
    began, after_round = time.monotonic(), 0.0
    with tempfile.TemporaryDirectory(prefix="benchmark-start-") as results:
        words = [sys.executable, "-u", *RUN, f"--run-dir={results}"]
        environment = {**os.environ, "PYTHONPATH": str(folder.resolve())}  # of Ray's workers, too
        with subprocess.Popen(
            words, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True
        ) as run:
            for line in run.stdout or ():
                if line.startswith("round 1/1"):
                    after_round = time.monotonic() - began
        ended = time.monotonic() - began
    assert run.returncode == 0
    return after_round, ended


def median_and_range(seconds: Sequence[float]) -> str:
    """Return what is printed of measured seconds."""
    return f"{statistics.median(seconds):.1f} ({min(seconds):.1f} to {max(seconds):.1f})"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--checkouts", nargs="+", type=Path, default=[Path()])
    chosen = parser.parse_args()
    measured: dict[Path, list[tuple[float, float]]] = {folder: [] for folder in chosen.checkouts}
    for _ in range(chosen.repeats):
        for folder, seconds in measured.items():  # in turn
            seconds.append(measure(folder))
    for folder, seconds in measured.items():
        rounds, ends = zip(*seconds, strict=True)
        print(
            f"{folder}: round 1 after {median_and_range(rounds)} s, end {median_and_range(ends)} s"
        )


if __name__ == "__main__":
    main()
