"""Memory of a device during a run with a large model, and after it, by strategy.

    python -m benchmarks.device_memory [--weights 25000000] [--strategies fedavg stc qsgd]

A SuperLink and a SuperNode with TLS and authentication on this machine; the client takes one step
in every round. Printed is the resident memory less what it is before the run, in models of four
bytes a weight: the most that each process had, and what all had a while after the run. Beside it is
the most that the files of the client's state had, which may be in memory, too.
"""

import argparse
import os
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
from rich import box
from rich.console import Console
from rich.table import Table
from torch import nn

from tasks.mnist import MNIST_LOGISTIC
from tests.support.deployment import Deployment
from tests.support.documents import ROOT
from tests.support.run_folders import read_history
from tests.support.usage import repeatedly

WIDTH, INPUTS = "BENCHMARK_WIDTH", 784 + 10
START, AFTER = 15, 30  # seconds before and after the run
WORK: dict[str, Any] = {
    "task": "benchmarks.device_memory:TASK", "num-clients": 1, "min-nodes": 1, "fraction-train": 1,
    "local-steps": 1, "target": "none", "data-source": "embedded",
}  # fmt: skip


def network() -> nn.Module:
    """Return a network of one hidden layer."""
    width = int(os.environ[WIDTH])
    return nn.Sequential(nn.Flatten(), nn.Linear(784, width), nn.ReLU(), nn.Linear(width, 10))


TASK = replace(MNIST_LOGISTIC, name="wide", model=network)


def memory(device: psutil.Process, field: str) -> Counter[str]:
    """Return a field of /proc/PID/status in bytes: a SuperNode's, and the largest of its clients'.

    That of a client is less what it shares with the process of which it is a fork. With them is the
    size of the SuperNode's files without a name.
    """
    found: Counter[str] = Counter()
    for process in (device, *device.children(recursive=True)):
        with suppress(psutil.Error, OSError, IndexError):  # it has just ended
            if "-m deployment.supernode " in " ".join(process.cmdline()):
                found["SuperNode"] = _field(process.pid, field)
                files = Path(f"/proc/{process.pid}/fd").iterdir()
                unnamed = (file for file in files if "(deleted)" in str(file.readlink()))
                found["files"] = sum(file.stat().st_size for file in unnamed)
            elif process.parent().cmdline() == process.cmdline():  # type: ignore[union-attr]
                shared = _field(process.ppid(), "VmRSS")
                found["client"] = max(found["client"], _field(process.pid, field) - shared)
    return found


def _field(pid: int, name: str) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(status.split(f"{name}:")[1].split()[0])


def measure(weights: int, strategy: str, rounds: int) -> list[str]:
    """Return a strategy's line of the table."""
    # The app's package has no benchmarks.
    os.environ |= {WIDTH: str(weights // INPUTS), "PYTHONPATH": str(ROOT)}
    with (
        tempfile.TemporaryDirectory(prefix="benchmark-device-") as name,
        Deployment(Path(name), 1) as deployment,
    ):
        time.sleep(START)
        device = psutil.Process(deployment.processes["device-0"].pid)
        before, most = memory(device, "VmRSS"), Counter[str]()

        def note() -> None:
            for part, size in memory(device, "VmHWM").items():
                most[part] = max(most[part], size)

        keys = {**WORK, "strategy": strategy, "num-server-rounds": rounds}
        with repeatedly(note, 0.05):
            run = deployment.train(
                Path(name) / "runs", seconds=3600, **{"evaluate-every": rounds, **keys}
            )
        assert not any(line["rejected"] for line in read_history(run))
        time.sleep(AFTER)
        after = memory(device, "VmRSS")
    cells = (most, "client"), (most, "SuperNode"), (after, "SuperNode"), (most, "files")
    model = 4 * INPUTS * (weights // INPUTS)
    return [strategy, *(f"{(sizes[part] - before[part]) / model:.1f}" for sizes, part in cells)]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weights", type=int, default=25_000_000)
    parser.add_argument("--strategies", nargs="+", default=["fedavg", "stc", "qsgd"])
    parser.add_argument("--rounds", type=int, default=4)
    chosen = parser.parse_args()
    columns = "strategy", "client", "SuperNode", "SuperNode, after the run", "files"
    table = Table(*columns, box=box.MARKDOWN)
    for strategy in chosen.strategies:
        table.add_row(*measure(chosen.weights, strategy, chosen.rounds))
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
