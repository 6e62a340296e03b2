"""Seconds a round of a real deployment: this project's loop and devices next to Flower's own.

    python -m benchmarks.latency [--task mnist-2nn] [--nodes 3] [--rounds 8] [--repeats 1]
        [--devices stock warm]

A SuperLink and SuperNodes with TLS and authentication on this machine, all of them taking part in
every round, on the embedded data. In turn, for the same ClientApp and the same work:

* stock: `flwr.serverapp.strategy.FedAvg(...).start(...)` (benchmarks/stock_server.py) on Flower's
  own SuperNodes, which look for tasks every second and start a new Python for every message;
* stock devices: `fedavg_app.server_app` on the same SuperNodes;
* warm devices: `fedavg_app.server_app` on those of deployment/supernode.sh.

A round lasts from when its messages are made to when those of the next one are. Printed are
medians over all rounds but the first, and the parts of a round for the node whose reply was sent
last; they add up to the round for each one, but their medians need not. More lines have what one
device's processes use without a run, half a minute after one: their proportional set sizes (pages
that processes share count in parts), their private pages, and CPU time; and by how much less memory
the machine has available than before the SuperLink and the devices were started.

Linux only, and as root: processes' ages and memory are read from /proc, and a SuperExec hides its
own.
"""

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.background import repeatedly
from benchmarks.stages import FILE
from tests.support.deployment import Deployment
from tests.support.processes import session

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
STOCK, STOCK_DEVICES, WARM_DEVICES = "stock", "stock devices", "warm devices"
DEVICES = ("stock", "warm")
# What makes a SuperNode start clients in Flower's way.
STOCK_OPTIONS = ["--isolation", "subprocess"]

# After a run, a warm device looks for messages less and less often, and then every 3 s.
SECONDS_TO_REST, SECONDS_AT_REST = 31, 20


class MemoryInUse:
    """How much less memory the machine has available than at first.

    Attributes:
        most: The most so far, in MB.
    """

    def __init__(self) -> None:
        self._before, self.most = available_mb(), 0.0

    def now(self) -> float:
        """Return it, in MB."""
        return self._before - available_mb()

    def look(self) -> None:
        """Take note of it."""
        self.most = max(self.most, self.now())


def available_mb() -> float:
    """Return the machine's available memory in MB."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable")) / 1024


class Logs:
    """The SuperNodes' logs, which have no times; a context manager.

    Attributes:
        seen: (time, partition, line), in the order of time.
    """

    def __init__(self, deployment: Deployment) -> None:
        self.seen: list[tuple[float, int, str]] = []
        self._paths = [deployment.folder / f"device-{n}.log" for n in range(deployment.nodes)]
        self._following = ExitStack()

    def __enter__(self) -> "Logs":
        """Follow them from here on."""
        files = [self._following.enter_context(path.open()) for path in self._paths]
        for file in files:
            file.seek(0, os.SEEK_END)

        def look() -> None:
            for number, file in enumerate(files):
                lines = file.read().splitlines()
                self.seen += [(time.time(), number, line) for line in lines]

        self._following.enter_context(repeatedly(look, 0.01))
        return self

    def __exit__(self, *_: object) -> None:
        """End."""
        self._following.close()

    def times(self, number: int, text: str) -> list[float]:
        """Return when the SuperNode of that partition wrote lines with that text."""
        return [at for at, node, line in self.seen if node == number and text in line]


def stock_app(folder: Path) -> Path:
    """Return a copy of the app in the folder, with the ServerApp of `benchmarks.stock_server`."""
    for package in ("fedavg_app", "strategies", "tasks"):
        shutil.copytree(
            ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    shutil.copy(ROOT / "README.md", folder)
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
    with Logs(deployment) as logs:
        deployment.run_app(app, 600, **config)
        time.sleep(1)  # for the last lines of the logs
    nodes = range(deployment.nodes)
    recorded = sorted(map(json.loads, file.read_text().splitlines()), key=lambda s: s["round"])
    by_node = {number: [s for s in recorded if s["node"] == number] for number in nodes}
    for number, stages in by_node.items():
        # What comes before the last so many is of the query at the start of a run.
        for name, text in (
            ("received", "Receiving: "),
            ("sending", "Sending: "),
            ("replied", "Sent successfully"),
        ):
            times = logs.times(number, text)[-len(stages) :]
            for found, at in zip(stages, times, strict=True):
                found[name] = at
    by_round = zip(*by_node.values(), strict=True)
    last = [max(of_round, key=lambda s: s["replied"]) for of_round in by_round]
    return [{**found, "next": then["sent"]} for found, then in pairwise(last[1:])]


def parts(found: Stages) -> Iterator[float]:
    """Yield the seconds of each of `PARTS`."""
    before = found["sent"]
    for name in PARTS:
        yield found[name] - before
        before = found[name]


def middle(values: Sequence[float]) -> str:
    """Return the median and the range."""
    return f"{statistics.median(values):.2f} ({min(values):.1f} to {max(values):.1f})"


def at_rest(deployment: Deployment) -> dict[str, float]:
    """Return what the processes of the first device use without a run."""
    time.sleep(SECONDS_TO_REST)
    processes = session(deployment.processes["device-0"].pid)
    memory = memory_mb(processes, "Pss", "Private_Dirty")
    before = sum(map(cpu_seconds, processes))
    time.sleep(SECONDS_AT_REST)
    used = sum(map(cpu_seconds, processes)) - before
    return {
        "proportional memory of a device at rest, MB": memory["Pss"],
        "private memory of a device at rest, MB": memory["Private_Dirty"],
        "CPU of a device at rest, % of a core": 100 * used / SECONDS_AT_REST,
    }


def memory_mb(processes: Iterable[int], *names: str) -> dict[str, float]:
    """Return the sums over the processes of these lines of their memory maps, in MB."""
    sums = dict.fromkeys(names, 0.0)
    for pid in processes:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            name, _, value = line.partition(":")
            if name in sums:
                sums[name] += int(value.split()[0]) / 1024
    return sums


def cpu_seconds(pid: int) -> float:
    """Return the CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", default="mnist-2nn")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--devices", nargs="+", choices=DEVICES, default=DEVICES)
    chosen = parser.parse_args()
    config = {
        "task": chosen.task, "num-clients": chosen.nodes, "num-server-rounds": chosen.rounds,
        "target-accuracy": 0, "client-mods": "benchmarks.stages:record_stages",
        "data-source": "embedded",
    }  # fmt: skip
    console = Console(width=130)
    rest: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="benchmark-latency-") as name:
        config["run-dir"] = str(Path(name) / "runs")
        (Path(name) / "app").mkdir()
        stock = stock_app(Path(name) / "app")
        turns = {
            "stock": {STOCK: stock, STOCK_DEVICES: ROOT},
            "warm": {WARM_DEVICES: ROOT},
        }
        turns = {devices: turns[devices] for devices in chosen.devices}
        found: dict[str, list[Stages]] = {loop: [] for apps in turns.values() for loop in apps}
        for turn in range(chosen.repeats):
            for devices, apps in turns.items():
                folder = Path(name) / f"{devices}-{turn}"
                folder.mkdir()
                deployment = Deployment(folder, chosen.nodes)
                deployment.environment[FILE] = str(folder / "stages.jsonl")
                # A device keeps the bytecode of the app's files for the next message.
                deployment.environment.pop("PYTHONDONTWRITEBYTECODE", None)
                if devices == "stock":
                    deployment.node_options += STOCK_OPTIONS
                memory = MemoryInUse()
                with repeatedly(memory.look, 0.5), deployment:
                    for loop, app in apps.items():
                        found[loop] += measure(deployment, app, config)
                        rounds = [stages["next"] - stages["sent"] for stages in found[loop]]
                        load = os.getloadavg()[0]
                        console.print(f"{loop}: {middle(rounds)} s a round; load {load:.1f}")
                    rest[devices] = {
                        **at_rest(deployment),
                        "all devices and the SuperLink at rest, MB": memory.now(),
                        "all of them at most, MB": memory.most,
                    }
    table = Table("", *found, title="seconds a round: median (range)")
    for number, text in enumerate(PARTS.values()):
        columns = ([list(parts(stages))[number] for stages in found[loop]] for loop in found)
        table.add_row(text, *map(middle, columns))
    rounds_of = {loop: [s["next"] - s["sent"] for s in stages] for loop, stages in found.items()}
    table.add_row("a round", *map(middle, rounds_of.values()), style="bold")
    for name in next(iter(rest.values())):
        values = [f"{of_devices[name]:.1f}" for of_devices in rest.values()]
        table.add_row(name, *([""] * (len(found) - len(values))), *values)
    console.print(table)
    medians = {loop: statistics.median(rounds) for loop, rounds in rounds_of.items()}
    for loop in (STOCK, STOCK_DEVICES) if len(rest) > 1 else ():
        console.print(f"{loop} / {WARM_DEVICES}: {medians[loop] / medians[WARM_DEVICES]:.2f}x")


if __name__ == "__main__":
    main()
