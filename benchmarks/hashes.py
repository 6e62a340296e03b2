"""Two hashes of many seeded runs: what has changed by a bit?

    make hashes > before.txt    # change the code, then
    make hashes > after.txt; diff before.txt after.txt

One line for each run, and for each of `tests.support.networks` under five strategies: for each
``model:bytes``, or why there is none, and the last test accuracy. The first hash is of the model,
the losses and the metrics; the second is of the bytes sent, which a change of the protocol changes
alone. All run in one process, on small data that are made here or come with packages. Hashes are of
one machine: on another, with other torch or NumPy, all differ.
"""

import argparse
import hashlib
import io
import json
import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import torch
from flwr.app import ArrayRecord

import tasks
from fedavg_app.central_sgd import train_centrally
from fedavg_app.config import CentralConfig, parse_config
from fedavg_app.results.history import TrainingResult
from tests.support import data_slices, networks
from tests.support.in_process import run_here

FLOWER = "flwr.serverapp.strategy:"
PRIVATE = f"{FLOWER}DifferentialPrivacyServerSideFixedClipping"
SHARDS = {
    "task": "mnist-2nn", "data-source": "embedded", "num-clients": 10, "fraction-train": 0.5,
    "num-server-rounds": 3, "partition": "shards", "local-steps": 5, "target": "none",
    "learning-rate": 0.05,
}  # fmt: skip
# Few examples, so that every task is quick.
SLICE = {"num-clients": 4, "fraction-train": 0.5, "num-server-rounds": 2, "local-steps": 2,
         "batch-size": 4, "target": "none", "learning-rate": 0.01}  # fmt: skip
NETWORK = {"data-source": "embedded", "num-clients": 4, "fraction-train": 0.5,
           "num-server-rounds": 2, "batch-size": 20, "target": "none"}  # fmt: skip
NETWORK_STRATEGIES = {
    "fedavg": "", "fedsgd": "", "stc": "sparsity-up = 0.1, sparsity-down = 0.1", "scaffold": "",
    f"{FLOWER}FedAdam": "eta = 0.01, tau = 0.1",
}  # fmt: skip
# What the history has of a round; a figure that is new there leaves the hashes as they were.
FIGURES = (
    "round", "participants", "learning_rate", "train_loss", "test_loss", "accuracy",
    "client_metrics",
)  # fmt: skip
BYTES = "bytes_down", "bytes_up", "theory_bits_down", "theory_bits_up"
# Other strategies and settings, as changes of `SHARDS`.
CHANGES: dict[str, dict[str, Any]] = {
    **{name: {"strategy": name} for name in (
        "fedsgd", "fednova", "scaffold", "stc", "topk", "signsgd", "qsgd", "eden")},
    "low-rank": {"strategy": "compressed", "strategy-args": "uplink = 'low-rank'"},
    "rotated both ways": {
        "strategy": "compressed", "strategy-args": "uplink = 'rotated', downlink = 'rotated'"},
    "FedAdam": {"strategy": f"{FLOWER}FedAdam", "strategy-args": "eta = 0.01, tau = 0.1"},
    "FedAvgM": {"strategy": f"{FLOWER}FedAvgM", "strategy-args": "server-momentum = 0.9"},
    "FedProx": {"strategy": f"{FLOWER}FedProx", "strategy-args": "proximal-mu = 0.1"},
    "FedMedian": {"strategy": f"{FLOWER}FedMedian"},
    "Krum": {"strategy": f"{FLOWER}Krum", "strategy-args": "num-malicious-nodes = 1"},
    "QFedAvg": {"strategy": f"{FLOWER}QFedAvg", "strategy-args": "client-learning-rate = 0.05"},
    "momentum": {"momentum": 0.9},
    "stc momentum": {"strategy": "stc", "momentum": 0.9},
    "fedsgd momentum": {"strategy": "fedsgd", "momentum": 0.9},
    "weight decay": {"weight-decay": 0.01, "learning-rate-decay": 0.9},
    "all examples a step": {"batch-size": 0, "local-steps": 2},
    "epochs": {"local-steps": 0, "local-epochs": 2, "batch-size": 50},
    "uniform weights": {"strategy-args": "weights = 'uniform'"},
    "server adam": {"strategy-args": "server-optimizer = {name = 'adam', learning-rate = 0.01}"},
    "stc server sgd": {"strategy": "stc", "strategy-args": "server-optimizer = 'sgd'"},
    "stc whole model": {"strategy": "stc", "strategy-args": "scope = 'model', weights = 'samples'"},
    "dirichlet": {"partition": "dirichlet", "partition-args": "alpha = 0.5"},
    "classes": {"partition": "classes", "partition-args": "classes-per-client = 3"},
    "clients evaluate": {"fraction-evaluate": 0.5},
    "links": {"links": "phones", "round-timeout": 60.0, "over-selection": 0.4},
    "local arrays": {"task": "tests.support.networks:BATCH_NORM", "local-arrays": "1.*",
                     "partition": "iid", "fraction-evaluate": 1.0},
    "stc cnn": {"task": "mnist-cnn", "strategy": "stc"},
    "fedsgd cnn": {"task": "mnist-cnn", "strategy": "fedsgd", "num-server-rounds": 2},
    "everything": {"task": "tests.support.models:EVERYTHING", "strategy": "stc"},
}  # fmt: skip


def digest(result: TrainingResult) -> str:
    """Return a hash of the model's arrays and the history's `FIGURES`, and one of its `BYTES`."""
    found, sent = hashlib.sha256(), hashlib.sha256()
    for name, array in (result.model or ArrayRecord()).items():
        values = array.numpy()
        found.update(f"{name} {values.dtype} {values.shape}".encode() + values.tobytes())
    for metrics in result.history:
        own = metrics.as_json()
        found.update(json.dumps([own[name] for name in FIGURES]).encode())
        sent.update(json.dumps([own[name] for name in BYTES]).encode())
    return f"{found.hexdigest()[:12]}:{sent.hexdigest()[:8]}"


def outcome(values: dict[str, Any], folder: Path) -> tuple[str, float | None]:
    """Return the hashes of a run, or the error that ended it, and the last test accuracy."""
    try:
        result = run_here(parse_config({**values, "run-dir": str(folder), "device": "cpu"}))
    except Exception as error:
        return " ".join(f"{type(error).__name__}: {error}".split())[:60], None
    return digest(result), result.history[-1].accuracy


def runs(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name and the keys of every run but those of networks and of central SGD."""
    for task in tasks.names():
        data = str(data_slices.write(task, folder / task))
        natural = {"partition": "natural"} if task.startswith("shakespeare") else {}
        yield task, {**SLICE, **natural, "task": task, "data-dir": data}
    for name, changes in CHANGES.items():
        yield name, {**SHARDS, **changes}


def central(task: str, folder: Path) -> tuple[str, float | None]:
    """Return the hashes of some steps of central SGD."""
    config = CentralConfig(
        task=task, data_source="embedded", num_server_rounds=20, evaluate_every=10,
        target="none", run_dir=str(folder), device="cpu",
    )  # fmt: skip
    result = train_centrally(config, tasks.load(task))
    return digest(result), result.history[-1].accuracy


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="runs whose names contain this")
    only = parser.parse_args().only
    torch.set_num_threads(1)
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    out = sys.stdout
    with redirect_stdout(io.StringIO()), tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["FEDAVG_APP_CACHE"] = str(folder / "cache")

        def show(name: str, *found: tuple[str, float | None]) -> None:
            hashes = " ".join(digest for digest, _ in found)
            last = " ".join("-" if accuracy is None else f"{accuracy:.4f}" for _, accuracy in found)
            print(f"{name:20} {hashes} | {last}", file=out, flush=True)

        for name, values in runs(folder):
            if only in name:
                show(name, outcome(values, folder / "runs"))
        for task in ("mnist-2nn", "mnist-cnn"):
            if only in f"central {task}":
                show(f"central {task}", central(task, folder / "runs"))
        for network in networks.NAMES:
            if only in network:
                keys = {**NETWORK, "task": f"tests.support.networks:{network}"}
                show(network, *(
                    outcome({**keys, "strategy": name, "strategy-args": arguments}, folder / "runs")
                    for name, arguments in NETWORK_STRATEGIES.items()
                ))  # fmt: skip


if __name__ == "__main__":
    main()
