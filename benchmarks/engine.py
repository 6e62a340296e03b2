"""A round of the same run on RayGrid (`simulation.py`) and on Flower's own engine (`flwr run`).

    python -m benchmarks.engine --data-dir /path/to/mnist [--cases logistic cnn] [--repeats 2]

Both run each case in turn, in new processes each time, and test the global model after every round;
Flower's SuperLink is up already. Printed are the median seconds of a round, over all rounds but the
first two of all repeats, and the median seconds of the command beside its rounds: its start.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.support.documents import ROOT
from tests.support.flwr_run import flwr, local_superlink
from tests.support.run_folders import only_folder, read_history

# The first rounds, which are not counted.
SKIPPED = 2
RAYGRID, FLOWER = "RayGrid", "flwr run"
LOGISTIC = {
    "task": "mnist-logistic", "local-steps": 1, "batch-size": 20, "learning-rate": 0.04,
    "num-server-rounds": 150,
}  # fmt: skip
# Run configs of 100 clients, E = 1 and B = 10 unless stated, by their name in the table.
CASES: dict[str, tuple[str, dict[str, str | int | float]]] = {
    "logistic": ("logistic, 1 step, 10 of 100", LOGISTIC),
    "stc": ("the same with STC", {**LOGISTIC, "strategy": "stc"}),
    "2nn": ("2NN, 10 of 100", {"num-server-rounds": 12}),
    "2nn-all": ("2NN, 100 of 100", {"num-server-rounds": 5, "fraction-train": 1.0}),
    "cnn": ("CNN, 10 of 100", {"num-server-rounds": 5, "task": "mnist-cnn"}),
}


def measure(
    engine: str, keys: dict[str, str | int | float], flower: dict[str, str]
) -> tuple[list[float], float]:
    """Return the seconds of a run's rounds from the third on, and of the command beside its rounds.

    Args:
        engine: `RAYGRID` or `FLOWER`.
        keys: The run config.
        flower: The environment of `flwr` commands.
    """
    with tempfile.TemporaryDirectory(prefix="benchmark-engine-") as folder:
        keys = {**keys, "run-dir": folder, "target": "none"}
        started = time.monotonic()
        if engine == FLOWER:
            flwr(
                flower, "run", ".", "--stream",
                "-c", " ".join(f"{key}={value!r}" for key, value in keys.items()),
                "--federation-config", "num-supernodes=100 client-resources-num-cpus=1",
            )  # fmt: skip
        else:
            options = [f"--{key}={value}" for key, value in keys.items()]
            command = [sys.executable, "simulation.py", "run", *options]
            subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
        passed = time.monotonic() - started
        seconds = [line["seconds"] for line in read_history(only_folder(folder))[1:]]
    assert len(seconds) == keys["num-server-rounds"], "the run failed"
    return seconds[SKIPPED:], passed - sum(seconds)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--repeats", type=int, default=2)
    chosen = parser.parse_args()
    table = Table("", FLOWER, RAYGRID, "ratio", f"start: {FLOWER}", RAYGRID, title="seconds")
    with tempfile.TemporaryDirectory() as home, local_superlink(home) as flower:
        flwr(flower, "ls")  # starts the SuperLink
        for title, keys in map(CASES.__getitem__, chosen.cases):
            keys = {**keys, "data-dir": str(chosen.data_dir.resolve())}
            runs = [
                [measure(engine, keys, flower) for engine in (FLOWER, RAYGRID)]
                for _ in range(chosen.repeats)
            ]
            rounds, starts = [], []
            for of_engine in zip(*runs, strict=True):
                rounds.append(
                    statistics.median(second for seconds, _ in of_engine for second in seconds)
                )
                starts.append(statistics.median(start for _, start in of_engine))
            ratio = f"{rounds[0] / rounds[1]:.1f}x"
            table.add_row(
                title,
                *(f"{value:.4f}" for value in rounds),
                ratio,
                *(f"{value:.1f}" for value in starts),
            )
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
