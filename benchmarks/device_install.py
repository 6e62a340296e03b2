"""What a device installs, and what it can do with that and no more.

    python -m benchmarks.device_install

The package without extras goes into a new virtual environment, with nothing from pip's cache. A
SuperLink and two SuperNodes with TLS and authentication then run in that environment alone, as
docs/deployment.md starts them, and train on images of their own, each with half of the embedded
MNIST; `flwr run` builds the FAB that they get. Half a minute after the last run one device is
ended, and what the other's processes use is printed: their resident sets, which count shared pages
once for each process, their proportional ones, which count them in parts, and their private pages
that were written to. MB are 2^20 bytes.

Linux only, and as root: a SuperExec hides its memory. This program itself needs the extra `dev`.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.latency import ROOT, SECONDS_TO_REST, memory_mb
from tasks.data.dataset import DataOptions
from tasks.data.mnist import MNIST
from tests.support import data_slices
from tests.support.deployment import Deployment
from tests.support.processes import session

CUDA = ("nvidia-", "cuda-", "triton")
TRAININGS = [("mnist-2nn", "fedavg", 2), ("mnist-cnn", "fedavg", 2), ("mnist-2nn", "stc", 10)]
MEMORY = {"Rss": "resident", "Pss": "proportional", "Private_Dirty": "private"}


def alone(variables: dict[str, str], venv: Path) -> dict[str, str]:
    """Return the variables with the programs and modules of the environment before all others."""
    path = f"{venv / 'bin'}{os.pathsep}{variables['PATH']}"
    return {k: v for k, v in variables.items() if k != "PYTHONPATH"} | {"PATH": path}


def install(venv: Path) -> None:
    """Install the package without extras; print what that took."""
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    begin = time.monotonic()
    words = [str(venv / "bin" / "pip"), "install", "-qq", "--no-cache-dir", "-e", str(ROOT)]
    subprocess.run(words, env=alone(dict(os.environ), venv), check=True)
    print(f"pip install: {time.monotonic() - begin:.0f} s")
    (site,) = venv.glob("lib/python*/site-packages")
    packages = list(distributions(path=[str(site)]))
    cuda = [found for found in packages if found.name.startswith(CUDA)]
    print(f"packages: {len(packages)}, of them for CUDA: {len(cuda)}")
    of_cuda = megabytes(Path(str(file.locate())) for found in cuda for file in found.files or [])
    total = megabytes(venv.rglob("*"))
    print(f"MB: {total:.0f}, without those packages: {total - of_cuda:.0f}", end=", ")
    print(f"of that torch's own for CUDA: {megabytes((site / 'torch/lib').glob('*cuda*')):.0f}")


def megabytes(paths: Any) -> float:
    """Return the MB of those paths that are files."""
    return sum(path.lstat().st_size for path in paths if path.is_file()) / 2**20


def train(deployment: Deployment, folder: Path) -> None:
    """Start the devices and run each of the trainings; print how they ended."""
    data = MNIST.load(DataOptions("embedded")).train
    for number in range(2):
        own = folder / f"data-{number}"
        own.mkdir()
        arrays = {"inputs": data.inputs[number::2], "targets": data.targets[number::2]}
        np.savez_compressed(own / "train.npz", **arrays)
        deployment.add_node(number, f'partition-id={number} data-dir="{own}"')
    deployment.wait_for(lambda: deployment.online() == 2)
    tested = folder / "data-server"
    tested.mkdir()
    data_slices.mnist(tested, images=4000)  # and all 1,000 for testing
    common = {"num-clients": 2, "target-accuracy": 0, "data-source": "auto"}
    for task, strategy, rounds in TRAININGS:
        keys = {"task": task, "strategy": strategy, "num-server-rounds": rounds, **common}
        run = deployment.train(folder / f"{task}-{strategy}", **keys, **{"data-dir": str(tested)})
        summary = json.loads((run / "summary.json").read_text())
        assert summary["rejected-replies"] == 0, summary
        print(f"{task}, {strategy}: {summary['status']}, {summary['rounds']} rounds", end=", ")
        print(f"test accuracy {100 * summary['final-accuracy']:.1f} %")


def rest(deployment: Deployment, venv: Path) -> None:
    """Print what the only device uses; its libraries must be those of the environment."""
    time.sleep(SECONDS_TO_REST)
    os.killpg(deployment.processes["device-1"].pid, signal.SIGTERM)
    deployment.processes["device-1"].wait(30)
    pids = list(session(deployment.processes["device-0"].pid))
    maps = "".join(Path(f"/proc/{pid}/maps").read_text() for pid in pids).splitlines()
    loaded = {Path(line.split(maxsplit=5)[5]) for line in maps if "site-packages" in line}
    assert {path.is_relative_to(venv) for path in loaded} == {True}, loaded
    found = [f"{MEMORY[name]} {mb:.0f}" for name, mb in memory_mb(pids, *MEMORY).items()]
    print(f"{len(pids)} processes of a device at rest, MB: {', '.join(found)}")


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory(prefix="benchmark-install-") as name:
        folder = Path(name)
        os.environ["FEDAVG_APP_CACHE"] = str(folder / "cache")
        install(folder / "venv")
        (folder / "deployment").mkdir()
        deployment = Deployment(folder / "deployment", nodes=0)
        deployment.environment = alone(deployment.environment, folder / "venv")
        with deployment:
            train(deployment, folder)
            rest(deployment, folder / "venv")


if __name__ == "__main__":
    main()
