"""Seconds a round of a deployment with many devices, and what each costs the SuperLink.

    python -m benchmarks.devices [--devices 3 24 100] [--rounds 4]

A SuperLink with TLS and authentication on this machine, and light devices: threads of one process,
each with a key of its own and Flower's own connection, which train the embedded MNIST's logistic
regression for one step. All take part in every round. A SuperNode does the same requests, in two
processes or more; a machine of two cores has no room for 100 of those. Printed are the median of
all rounds but the first, the SuperLink's CPU time a device and round, and the requests for objects
that were answered "not there yet".
"""

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.support.deployment import Deployment
from tests.support.processes import session
from tests.support.run_folders import read_history

AT_REST = 15  # seconds
WORK: dict[str, Any] = {"task": "mnist-logistic", "data-source": "embedded", "local-steps": 1}


def cpu_seconds(superlink: int) -> float:
    """Return the CPU time of the SuperLink's own process, which serves all requests."""
    named = [pid for pid, command in session(superlink).items() if "-m deployment." in command]
    fields = Path(f"/proc/{named[0]}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(folder: Path, devices: int, rounds: int) -> list[str]:
    """Return a line of the table."""
    with Deployment(folder, 0) as deployment:
        for number in range(devices):
            words = deployment.command("ssh-keygen")
            deployment.run([word.replace("device-0", f"device-{number}") for word in words])
        shutil.copytree(folder / "home", folder / "home-fleet")  # they register their keys
        words = [sys.executable, "-m", "tests.support.light_devices", str(folder)]
        deployment.start("fleet", [*words, f"localhost:{deployment.port}", str(devices)])
        deployment.wait_for(lambda: deployment.online() == devices, 300)
        superlink = deployment.processes["superlink"].pid
        spent = cpu_seconds(superlink)
        time.sleep(AT_REST)
        rest = (cpu_seconds(superlink) - spent) / AT_REST / devices
        spent_after: list[float] = []
        runs = folder / "runs"
        watching = threading.Thread(target=watch, args=(runs, superlink, rounds, spent_after))
        watching.start()
        history = read_history(
            deployment.train(
                runs, seconds=3600, **WORK, **{"num-clients": devices, "min-nodes": devices},
                **{"num-server-rounds": rounds, "target": "none", "evaluate-every": rounds},
            )
        )  # fmt: skip
        watching.join()
        in_vain = int((folder / "in-vain").read_text())
    seconds = [line["seconds"] for line in history[2:]]
    cpu = (spent_after[-1] - spent_after[1]) / (rounds - 1) / devices
    return [
        str(devices), f"{statistics.median(seconds):.1f}",
        f"{min(seconds):.1f} to {max(seconds):.1f}", f"{cpu:.3f}", f"{in_vain / rounds:.0f}",
        f"{1000 * rest:.1f}", str(sum(len(line["rejected"]) for line in history)),
    ]  # fmt: skip


def watch(runs: Path, superlink: int, rounds: int, spent: list[float]) -> None:
    """Append the SuperLink's CPU time at the end of each round, the 0th included."""
    while len(spent) <= rounds:
        lines = sum(path.read_text().count("\n") for path in runs.glob("*/history.jsonl"))
        spent += [cpu_seconds(superlink)] * (lines - len(spent))
        time.sleep(0.1)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", nargs="+", type=int, default=[3, 24, 100])
    parser.add_argument("--rounds", type=int, default=4, help="at least 2")
    chosen = parser.parse_args()
    table = Table(
        "devices", "s a round", "range", "CPU s a device", "in vain", "at rest, ms/s", "rejected"
    )
    for devices in chosen.devices:
        with tempfile.TemporaryDirectory(prefix="benchmark-devices-") as name:
            table.add_row(*measure(Path(name), devices, chosen.rounds))
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
