"""What the process of one message costs before it trains, in seconds of CPU time, by import.

    python -m benchmarks.imports [--repeat 5]

A SuperNode starts Flower's flwr-clientapp anew for every message. Each line is a process that
imports what the line before does and one thing more; shown is what it takes more than that one, the
medians of alternating starts. CPU time, unlike the clock, is hardly changed by other load.
"""

import argparse
import statistics
import subprocess
import sys
from resource import RUSAGE_CHILDREN, getrusage

STEPS = {
    "Python": "pass",
    "Flower's flwr-clientapp": "from flwr.supernode.cli import flwr_clientapp",
    "torch": "import torch",
    "this app, a task and a strategy": (
        "import fedavg_app.client_app, fedavg_app.client.task_client, strategies, tasks; "
        "strategies.load('fedavg'); tasks.load('mnist-2nn')"
    ),
}


def cpu_seconds(code: str) -> float:
    """Return the CPU time of a Python process that runs the code."""
    before = getrusage(RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True)
    after = getrusage(RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Print what every step adds."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repeat", type=int, default=5)
    given = parser.parse_args()
    codes = ["; ".join(list(STEPS.values())[: n + 1]) for n in range(len(STEPS))]
    times = [[cpu_seconds(code) for code in codes] for _ in range(given.repeat)]
    total = 0.0
    for name, seconds in zip(STEPS, map(statistics.median, zip(*times, strict=True)), strict=True):
        print(f"{name:35} {seconds - total:5.2f} s")
        total = seconds
    print(f"{'all':35} {total:5.2f} s")


if __name__ == "__main__":
    main()
