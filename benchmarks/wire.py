"""Bytes of a real deployment at the socket, next to those that the history reports.

    python -m benchmarks.wire [--rounds 20]

A SuperLink and three SuperNodes with TLS and authentication on this machine, which train the MNIST
CNN by FedAvg and by STC (one local step, p = 1/400). The SuperNodes reach the SuperLink through a
proxy that counts what every connection carries, as TLS sends it; `flwr run` and the ServerApp's
process do not. What comes before round 1 (the app's files, a query) is told from the rounds by the
history, whose first line is written between them. Headers of TCP and IP, about 3 % of full packets,
are not counted.
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


def run(
    deployment: Deployment, link: SlowLink, config: dict[str, Any]
) -> tuple[Counter[str], list[dict[str, Any]]]:
    """Run the app; return the bytes "up" and "down" of its rounds, and the history."""
    runs = deployment.folder / f"runs-{config['strategy']}"
    with ThreadPoolExecutor(1) as pool:
        trained = pool.submit(deployment.train, runs, seconds=3600, **config)
        while not any(file.stat().st_size for file in runs.glob(f"*/{HISTORY_FILE}")):
            if trained.done():
                trained.result()
            time.sleep(0.005)
        begun = link.passed.copy()
        folder = trained.result()
    return link.passed - begun, read_history(folder)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    work = {
        "task": "mnist-cnn", "num-clients": NODES, "num-server-rounds": rounds,
        "local-steps": 1, "batch-size": 20, "evaluate-every": rounds, "target": "none",
    }  # fmt: skip
    title = "bytes of all rounds"
    table = Table("", "reported", "at the socket", "more, a message", "more, %", title=title)
    with tempfile.TemporaryDirectory(prefix="benchmark-wire-") as name:
        deployment = Deployment(Path(name), NODES, port := free_port())
        with SlowLink(port, deployment.port) as link, deployment:
            for strategy, keys in STRATEGIES.items():
                passed, history = run(deployment, link, {**work, **keys})
                for way in ("up", "down"):
                    reported = sum(line[f"bytes_{way}"] for line in history)
                    more = passed[way] - reported
                    numbers = (reported, passed[way], more / (rounds * NODES))
                    cells = [f"{number:,.0f}" for number in numbers]
                    table.add_row(f"{strategy}, {way}", *cells, f"{more / reported:.2%}")
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
