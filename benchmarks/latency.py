"""Seconds a round of a real deployment: this project's loop and devices next to Flower's own.

    python -m benchmarks.latency [--nodes 3] [--rounds 8] [--devices stock warm]

A SuperLink and SuperNodes with TLS and authentication on this machine, all of them taking part in
every round, on the embedded data. In turn, for the same ClientApp and the same work:

* stock: `flwr.serverapp.strategy.FedAvg(...).start(...)` (benchmarks/stock_server.py) on Flower's
  own SuperNodes, which look for tasks every second and start a new Python for every message;
* stock devices: `fedavg_app.server_app` on the same SuperNodes;
* warm devices: `fedavg_app.server_app` on those of deployment/supernode.sh.

A round lasts from when its messages are made to when those of the next one are. Printed are
medians over all rounds but the first, and the parts of a round for the node whose reply was sent
last; they add up to the round for each one, but their medians need not.

Linux only: a process's age is read from /proc.
"""

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.background import repeatedly
from benchmarks.stages import FILE
from tests.support.deployment import Deployment

ROOT = Path(__file__).parents[1]
Stages = dict[str, float]
# The part of a round that ends with each stage, in their order.
PARTS = {
    "received": "until the SuperNode looks for messages",
    "started": "download; until its SuperExec looks for tasks",
    "imported": "the process starts; Flower, torch and this app are imported",
    "done": "the client's handler: data, training",
    "sending": "until the SuperNode looks for the reply",
    "replied": "upload",
    "next": "until the server looks for replies; mean, test, next messages",
}
# The stages that a SuperNode logs, and what its line begins with.
LOGGED = {"received": "Receiving: ", "sending": "Sending: ", "replied": "Sent successfully"}
STOCK, STOCK_DEVICES, WARM_DEVICES = "stock", "stock devices", "warm devices"
DEVICES = ("stock", "warm")


@contextmanager
def followed_logs(deployment: Deployment) -> Iterator[list[tuple[float, int, str]]]:
    """Collect (time, partition, line) of the SuperNodes' logs, which have no times."""
    seen: list[tuple[float, int, str]] = []
    with ExitStack() as files:
        paths = [deployment.folder / f"device-{number}.log" for number in range(deployment.nodes)]
        logs = [files.enter_context(path.open()) for path in paths]
        for log in logs:
            log.seek(0, os.SEEK_END)

        def look() -> None:
            for number, log in enumerate(logs):
                seen.extend((time.time(), number, line) for line in log.read().splitlines())

        with repeatedly(look, 0.01):
            yield seen


def stock_app(folder: Path) -> Path:
    """Return a copy of the app in the folder, with the ServerApp of `benchmarks.stock_server`."""
    for package in ("fedavg_app", "strategies", "tasks"):
        shutil.copytree(
            ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    for name in ("README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    shutil.copy(ROOT / "benchmarks" / "stock_server.py", folder / "fedavg_app")
    manifest = (ROOT / "pyproject.toml").read_text()
    ours = "fedavg_app.server_app:app"
    assert ours in manifest
    manifest = manifest.replace(ours, "fedavg_app.stock_server:app")
    (folder / "pyproject.toml").write_text(manifest)
    return folder


def measure(deployment: Deployment, app: Path, config: dict[str, Any]) -> list[Stages]:
    """Run the app; return the stages of all rounds but the first, for the node that was last."""
    file = Path(deployment.environment[FILE])
    file.unlink(missing_ok=True)
    with followed_logs(deployment) as seen:
        deployment.run_app(app, 600, **config)
        time.sleep(1)  # for the last lines of the logs
    recorded = sorted(map(json.loads, file.read_text().splitlines()), key=lambda s: s["round"])
    by_node = [[s for s in recorded if s["node"] == node] for node in range(deployment.nodes)]
    for number, stages in enumerate(by_node):
        for name, text in LOGGED.items():
            times = [at for at, node, line in seen if node == number and text in line]
            # What comes before the last so many is of the query at the start of a run.
            for found, at in zip(stages, times[-len(stages) :], strict=True):
                found[name] = at
    last = [max(of_round, key=lambda s: s["replied"]) for of_round in zip(*by_node, strict=True)]
    return [{**found, "next": then["sent"]} for found, then in pairwise(last[1:])]


def middle(values: Sequence[float]) -> str:
    """Return the median and the range."""
    return f"{statistics.median(values):.2f} ({min(values):.1f} to {max(values):.1f})"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=8, help="at least 3")
    parser.add_argument("--devices", nargs="+", choices=DEVICES, default=DEVICES)
    chosen = parser.parse_args()
    config = {
        "task": "mnist-2nn", "num-clients": chosen.nodes, "num-server-rounds": chosen.rounds,
        "target-accuracy": 0, "client-mods": "benchmarks.stages:record_stages",
        "data-source": "embedded",
    }  # fmt: skip
    console = Console(width=130)
    found: dict[str, list[Stages]] = {}
    with tempfile.TemporaryDirectory(prefix="benchmark-latency-") as name:
        config["run-dir"] = str(Path(name) / "runs")
        for devices in chosen.devices:
            folder = Path(name) / devices
            (folder / "app").mkdir(parents=True)
            deployment = Deployment(folder, chosen.nodes)
            deployment.environment[FILE] = str(folder / "stages.jsonl")
            # A device keeps the bytecode of the app's files for the next message.
            deployment.environment.pop("PYTHONDONTWRITEBYTECODE", None)
            apps = {WARM_DEVICES: ROOT}
            if devices == "stock":
                deployment.node_options += ["--isolation", "subprocess"]
                apps = {STOCK: stock_app(folder / "app"), STOCK_DEVICES: ROOT}
            with deployment:
                for loop, app in apps.items():
                    found[loop] = measure(deployment, app, config)
    table = Table("", *found, title="seconds a round: median (range)")
    for (before, _), (name, text) in pairwise({"sent": "", **PARTS}.items()):
        table.add_row(text, *(middle([s[name] - s[before] for s in of]) for of in found.values()))
    rounds = {loop: [s["next"] - s["sent"] for s in stages] for loop, stages in found.items()}
    table.add_row("a round", *map(middle, rounds.values()), style="bold")
    console.print(table)
    medians = {loop: statistics.median(seconds) for loop, seconds in rounds.items()}
    for loop in (STOCK, STOCK_DEVICES) if len(chosen.devices) > 1 else ():
        console.print(f"{loop} / {WARM_DEVICES}: {medians[loop] / medians[WARM_DEVICES]:.2f}x")


if __name__ == "__main__":
    main()
