"""Seconds, memory and disk of a deployment with a large model, by strategy.

    python -m benchmarks.large_models [--weights 10000000 125000000] [--strategies fedavg stc]

A SuperLink and two SuperNodes with TLS and authentication on this machine; each client takes one
step in every round, and the model is tested after the last. Printed are the median seconds a round
from the second on; the most memory that a process of each part had, less what it has with a model
of 100 weights, in models; and the most bytes of the SuperLink's database and of its write-ahead
log, in models, too.
"""

import argparse
import os
import statistics
import tempfile
from collections import Counter
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.weights import SIDE
from tests.support.deployment import Deployment
from tests.support.documents import ROOT
from tests.support.run_folders import read_history
from tests.support.usage import repeatedly

PARTS = {
    "deployment.superlink": "SuperLink", "flwr-serverapp": "server app",
    "deployment.supernode --": "SuperNode", "multiprocessing.forkserver": "client",
}  # fmt: skip
FILES = {"superlink.db": "database", "superlink.db-wal": "log"}
WORK: dict[str, Any] = {
    "task": "benchmarks.weights:TASK", "num-clients": 2, "min-nodes": 2, "fraction-train": 1,
    "local-steps": 1, "target": "none",
}  # fmt: skip


def note_most(most: Counter[str], deployment: Deployment) -> None:
    """Raise ``most`` to the bytes that each part has had of memory, and each file on disk."""
    for process in psutil.Process().children(recursive=True):
        with suppress(OSError, IndexError, psutil.Error):
            command = " ".join(process.cmdline())
            part = next((part for words, part in PARTS.items() if words in command), "")
            if part == "client" and process.parent().cmdline() != process.cmdline():
                continue  # the process of which clients are forks, with torch's own memory
            status = Path(f"/proc/{process.pid}/status").read_text()
            most[part] = max(most[part], 1024 * int(status.split("VmHWM:")[1].split()[0]))
    for name, what in FILES.items():
        size = (deployment.folder / "certificates" / name).stat().st_size
        most[what] = max(most[what], size)


def measure(width: int, strategy: str, rounds: int) -> tuple[float, Counter[str]]:
    """Return a run's median seconds a round and the most bytes that each part had."""
    os.environ |= {SIDE: str(width), "PYTHONPATH": str(ROOT)}  # the app's package has no benchmarks
    with tempfile.TemporaryDirectory(prefix="benchmark-large-models-") as name:
        folder, most = Path(name), Counter[str]()
        keys = {"num-server-rounds": rounds, "evaluate-every": rounds, "strategy": strategy}
        with (
            Deployment(folder, 2) as deployment,
            repeatedly(partial(note_most, most, deployment), 0.05),
        ):
            run = deployment.train(folder / "runs", seconds=3600, **WORK, **keys)
        history = read_history(run)
    assert not any(line["rejected"] for line in history)
    return statistics.median(line["seconds"] for line in history[2:]), most


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weights", type=int, nargs="+", default=[10**7, 125 * 10**6])
    parser.add_argument("--strategies", nargs="+", default=["fedavg", "stc"])
    parser.add_argument("--rounds", type=int, default=3, help="at least 2")
    chosen = parser.parse_args()
    columns = [*PARTS.values(), *FILES.values()]
    table = Table("weights", "strategy", "s a round", *columns, box=box.MARKDOWN)
    for strategy in chosen.strategies:
        _, base = measure(10, strategy, chosen.rounds)
        for weights in chosen.weights:
            width = round(weights**0.5)
            seconds, most = measure(width, strategy, chosen.rounds)
            models = [f"{(most[name] - base[name]) / (4 * width**2):.1f}" for name in columns]
            table.add_row(f"{width**2:,}", strategy, f"{seconds:.1f}", *models)
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
