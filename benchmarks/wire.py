"""Bytes of a real deployment at the socket, next to those that the history reports.

    python -m benchmarks.wire [--rounds 20] [--quiet 90]

A SuperLink and three SuperNodes with TLS and authentication on this machine, which train the MNIST
CNN. The SuperNodes reach the SuperLink through a proxy that counts what every connection carries,
as TLS sends it; `flwr run` and the ServerApp's process do not. Counted are a quiet time without a
run, then FedAvg and STC (one local step, p = 1/400) in turn. What comes before round 1 (the app's
files, a query) is told from the rounds by the history, whose first line is written between them.
Headers of TCP and IP, about 3 % of full packets, are not counted.
"""

import argparse
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from fedavg_app.results.run_folder import HISTORY_FILE
from tests.support.deployment import Deployment
from tests.support.processes import free_port
from tests.support.run_folders import read_history
from tests.support.slow_link import SlowLink

NODES = 3
STRATEGIES: dict[str, dict[str, Any]] = {
    "fedavg": {"strategy": "fedavg"},
    "stc": {"strategy": "stc", "strategy-args": "sparsity-up = 0.0025, sparsity-down = 0.0025"},
}
Traffic = Counter[str]  # bytes "up" and "down", new "connections", and "seconds"


def traffic(link: SlowLink) -> Traffic:
    """Return what the SuperNodes sent and were sent so far."""
    return Counter({**link.passed, "seconds": time.monotonic()})


def run(
    deployment: Deployment, link: SlowLink, config: dict[str, Any]
) -> tuple[Traffic, Traffic, list[dict[str, Any]]]:
    """Run the app; return the traffic before round 1, that of the rounds, and the history."""
    runs = deployment.folder / f"runs-{config['strategy']}"
    start = traffic(link)
    with ThreadPoolExecutor(1) as pool:
        trained = pool.submit(deployment.train, runs, seconds=3600, **config)
        while not any(file.stat().st_size for file in runs.glob(f"*/{HISTORY_FILE}")):
            if trained.done():
                trained.result()
            time.sleep(0.005)
        begun = traffic(link)
        folder = trained.result()
    return begun - start, traffic(link) - begun, read_history(folder)


def row(title: str, reported: float, socket: float, messages: int) -> list[str]:
    """Return a line of the table; figures are bytes of all rounds."""
    more = socket - reported
    cells = [f"{number:,.0f}" for number in (reported, socket, more / messages)]
    return [title, *cells, f"{more / reported:.2%}"]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--quiet", type=float, default=90, help="seconds without a run")
    chosen = parser.parse_args()
    work = {
        "task": "mnist-cnn", "num-clients": NODES, "num-server-rounds": chosen.rounds,
        "local-steps": 1, "batch-size": 20, "evaluate-every": chosen.rounds, "target-accuracy": 0,
    }  # fmt: skip
    console = Console(width=110)
    table = Table(
        "", "reported", "at the socket", "more, a message", "more, %", title="bytes of all rounds"
    )
    with tempfile.TemporaryDirectory(prefix="benchmark-wire-") as name:
        deployment = Deployment(Path(name), NODES, port := free_port())
        with SlowLink(port, deployment.port) as link, deployment:
            before = traffic(link)
            time.sleep(chosen.quiet)
            quiet = traffic(link) - before
            console.print(
                f"quiet: a SuperNode sends {quiet['up'] / quiet['seconds'] / NODES:.0f} bytes/s "
                f"and is sent {quiet['down'] / quiet['seconds'] / NODES:.0f}; "
                f"{quiet['connections']} new connections in {quiet['seconds']:.0f} s"
            )
            for strategy, keys in STRATEGIES.items():
                begun, rounds, history = run(deployment, link, {**work, **keys})
                console.print(
                    f"{strategy}: {rounds['seconds'] / chosen.rounds:.1f} s a round, "
                    f"{rounds['connections']} new connections; before round 1 a SuperNode sends "
                    f"{begun['up'] / NODES:,.0f} bytes and is sent {begun['down'] / NODES:,.0f} "
                    f"in {begun['seconds']:.0f} s"
                )
                messages = chosen.rounds * NODES
                for way in ("up", "down"):
                    reported = sum(line[f"bytes_{way}"] for line in history)
                    table.add_row(*row(f"{strategy}, {way}", reported, rounds[way], messages))
                    idle = quiet[way] / quiet["seconds"] * rounds["seconds"]
                    title = "  without as much as is quiet"
                    table.add_row(*row(title, reported, rounds[way] - idle, messages))
    console.print(table)


if __name__ == "__main__":
    main()
