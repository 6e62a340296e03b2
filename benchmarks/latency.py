"""Seconds a round of a real deployment, with Flower's own SuperNodes and with warm ones.

    python -m benchmarks.latency [--nodes 3] [--rounds 8] [--devices stock warm]

A SuperLink and SuperNodes with TLS and authentication on this machine, all of them taking part in
every round, on the embedded data. Stock SuperNodes look for tasks every second and start a new
Python for every message; warm ones are those of deployment/supernode.sh. Printed are the median
and the range over all rounds but the first.
"""

import argparse
import statistics
import tempfile
from pathlib import Path

from tests.support.deployment import Deployment
from tests.support.run_folders import read_history

# Options of deployment/supernode.sh.
DEVICES = {"stock": ["--isolation", "subprocess"], "warm": []}


def measure(folder: Path, devices: str, nodes: int, rounds: int) -> list[float]:
    """Return the seconds of all rounds but the first, on SuperNodes of that kind."""
    (folder / "deployment").mkdir(parents=True)
    deployment = Deployment(folder / "deployment", nodes)
    deployment.node_options += DEVICES[devices]
    # A device keeps the bytecode of the app's files for the next message.
    deployment.environment.pop("PYTHONDONTWRITEBYTECODE", None)
    config = {
        "task": "mnist-2nn", "num-clients": nodes, "num-server-rounds": rounds,
        "target": "none",
    }  # fmt: skip
    with deployment:
        run = deployment.train(folder / "runs", seconds=600, **config)
    return [line["seconds"] for line in read_history(run)[2:]]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=8, help="at least 2")
    parser.add_argument("--devices", nargs="+", choices=DEVICES, default=list(DEVICES))
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="benchmark-latency-") as name:
        for devices in chosen.devices:
            found = measure(Path(name) / devices, devices, chosen.nodes, chosen.rounds)
            spread = f"{min(found):.1f} to {max(found):.1f}"
            print(f"{devices}: {statistics.median(found):.2f} s a round ({spread})", flush=True)


if __name__ == "__main__":
    main()
