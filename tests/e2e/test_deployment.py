"""docs/deployment.md with real processes: a SuperLink, SuperNodes, TLS and authentication."""

import os
import signal
import sys
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

import tasks
from fedavg_app.config import RunConfig
from fedavg_app.partitions import partition
from strategies.aggregation import weighted_mean
from tasks.base import Examples
from tasks.client import TaskClient
from tasks.data.mnist import MNIST
from tasks.data.store import DataOptions, Split
from tests import slices
from tests.docs.reading import ROOT
from tests.e2e.deployment import Deployment
from tests.e2e.namespaces import Network

NODES = 3

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def deployment(tmp_path_factory):
    folder = tmp_path_factory.mktemp("deployment")
    network = Network() if Network.allowed() else nullcontext()
    with network as inside, Deployment(folder, NODES, network=inside) as found:
        yield found


STC = {"strategy": "stc", "local-steps": 1, "batch-size": 20}


@pytest.mark.parametrize("changes", [{}, STC], ids=["fedavg", "stc"])
def test_the_model_is_the_simulations(deployment, tmp_path, changes):
    trained = deployment.train(tmp_path / "deployed", seed=5, **changes)
    flags = [f"--{key}={value}" for key, value in changes.items()]
    deployment.run(
        [sys.executable, "simulation.py", "run", "--task=mnist-logistic", "--num-clients=3",
         "--fraction-train=1.0", "--num-server-rounds=2", "--data-source=embedded", "--seed=5",
         f"--run-dir={tmp_path / 'simulated'}", *flags],
        cwd=ROOT,
    )  # fmt: skip
    (simulated,) = (tmp_path / "simulated").iterdir()
    ours, theirs = (load_file(f / "model.safetensors") for f in (trained, simulated))
    for name, array in theirs.items():
        assert np.array_equal(ours[name], array), name


def test_devices_bring_data_of_their_own(deployment, tmp_path):
    """One brings canonical files, one an archive; the third keeps its part of the shared set."""
    files, archive = tmp_path / "files", tmp_path / "archive"
    slices.write("mnist-logistic", files)  # 120 training images
    archive.mkdir()
    data = MNIST.load(DataOptions("embedded")).train
    np.savez_compressed(archive / "train.npz", inputs=data.inputs[:70], targets=data.targets[:70])
    for number, folder in ((0, files), (1, archive)):
        process = deployment.processes[f"device-{number}"]
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(30)
        words = deployment.command("deploy/supernode.sh", "own/data")
        config = words[4].replace("=0", f"={number}").replace("/path/to/own/data", str(folder))
        deployment.start_node(number, f"device-{number}", config)
    deployment.wait_for(lambda: deployment.online() == NODES)
    trained = load_file(deployment.train(tmp_path / "runs", seed=5) / "model.safetensors")
    # FedAvg by hand: the three train on what each holds and count by how much that is.
    task, cpu = tasks.load("mnist-logistic"), torch.device("cpu")
    shared = MNIST.load(DataOptions("embedded"))
    part = partition(shared, "train", RunConfig(num_clients=3, seed=5))[2]
    held = [
        MNIST.load(DataOptions(directory=str(files))).train,
        Split(shared.train.inputs[:70], shared.train.targets[:70]),
        Split(shared.train.inputs[part], shared.train.targets[part]),
    ]
    assert [len(split) for split in held[:2]] == [120, 70]
    model = task.initial_model(5)
    state = {name: array.numpy().copy() for name, array in model.state_dict().items()}
    work = {"learning-rate": 0.04, "local-epochs": 1, "batch-size": 10, "seed": 5}
    for server_round in (1, 2):
        updates = []
        for number, split in enumerate(held):
            client = TaskClient(task, model, Examples.stored(task, split, cpu), partition=number)
            arrays = client.fit(list(state.values()), {**work, "server-round": server_round})[0]
            updates.append(dict(zip(state, arrays, strict=True)))
        state = weighted_mean(updates, [len(split) for split in held])
    for name, array in state.items():
        np.testing.assert_allclose(trained[name], array, atol=1e-6)


@pytest.mark.parametrize("stranger", ["an unregistered key", "another authority"])
def test_strangers_are_refused(deployment, stranger):
    key = f"stranger-{len(stranger)}"
    deployment.run(["ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-f", key])
    authority = None
    if stranger == "another authority":
        deployment.run(["deploy/certificates.sh", "other", "localhost"])
        deployment.run(["flwr", "supernode", "register", f"{key}.pub", "deployment"])
        authority = "other/ca.crt"
    process = deployment.start_node(NODES, key, authority=authority)
    assert process.wait(60) == 1
    assert deployment.online() == NODES
