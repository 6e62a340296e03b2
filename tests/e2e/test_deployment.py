"""docs/deployment.md with real processes: a SuperLink, SuperNodes, TLS and authentication."""

import json
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

import tasks
from fedavg_app.config import RunConfig
from fedavg_app.partitioning import partition
from tasks.data.dataset import DataOptions, Split
from tasks.data.mnist import MNIST
from tasks.training.local_training import TaskClient
from tests.support import data_slices
from tests.support.deployment import Deployment
from tests.support.means import weighted_mean
from tests.support.namespaces import Network
from tests.support.rounding import assert_same_change
from tests.support.task_clients import fit

NODES = 3

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def deployment(tmp_path_factory):
    folder = tmp_path_factory.mktemp("deployment")
    network = Network() if Network.allowed() else nullcontext()
    with network as inside, Deployment(folder, NODES, network=inside) as found:
        yield found


@pytest.mark.long
def test_devices_train_on_their_own_data(deployment, tmp_path):
    """One has canonical files, one an archive; the third has its partition of the shared set."""
    files, archive = tmp_path / "files", tmp_path / "archive"
    data_slices.write("mnist-logistic", files)  # 120 training images
    archive.mkdir()
    data = MNIST.load(DataOptions("embedded")).train
    np.savez_compressed(archive / "train.npz", inputs=data.inputs[:70], targets=data.targets[:70])
    for number, folder in ((0, files), (1, archive)):
        deployment.stop_node(f"device-{number}")
        words = deployment.command("deployment/supernode.sh", "own/data")
        node = words[4].replace("=0", f"={number}").replace("/path/to/own/data", str(folder))
        if number == 1:  # as Flower's own apps name it
            node = node.replace("data-dir", "data-path")
        deployment.start_node(number, f"device-{number}", node)
    deployment.wait_for(lambda: deployment.online() == NODES)
    folder = deployment.train(tmp_path / "runs", seed=5)
    trained = load_file(folder / "model.safetensors")
    assert "2 of 3 clients train on data of their own" in (folder / "run.log").read_text()
    own_data = json.loads((folder / "summary.json").read_text())["own-data"]
    assert {client: data["examples"] for client, data in own_data.items()} == {"0": 120, "1": 70}
    # FedAvg by hand: each trains on its own data, and its weight is their number.
    task, cpu = tasks.load("mnist-logistic"), torch.device("cpu")
    shared = MNIST.load(DataOptions("embedded"))
    third = partition(shared, "train", RunConfig(num_clients=3, seed=5))[2]
    local = [
        MNIST.load(DataOptions(directory=str(files))).train,
        Split(shared.train.inputs[:70], shared.train.targets[:70]),
        Split(shared.train.inputs[third], shared.train.targets[third]),
    ]
    assert [len(split) for split in local[:2]] == [120, 70]
    model = task.initial_model(5)
    state = {name: array.numpy().copy() for name, array in model.state_dict().items()}
    config = {"learning-rate": 0.04, "local-epochs": 1, "batch-size": 10, "seed": 5}
    for server_round in (1, 2):
        updates = []
        for number, split in enumerate(local):
            examples = task.examples(split, cpu)
            client = TaskClient(task, task.networks(5, cpu), examples, partition=number)
            arrays = fit(client, list(state.values()), {**config, "server-round": server_round})[0]
            updates.append(dict(zip(state, arrays, strict=True)))
        state = weighted_mean(updates, [len(split) for split in local])
    start = [array.numpy() for array in task.initial_model(5).state_dict().values()]
    assert_same_change([trained[name] for name in state], state.values(), start)


@pytest.mark.parametrize("reason", ["unregistered key", "other authority"])
def test_supernode_with_unregistered_key_or_other_authority_is_refused(deployment, reason):
    key = reason.replace(" ", "-")
    deployment.run(["ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-f", key])
    authority = None
    if reason == "other authority":
        deployment.run(["deployment/certificates.sh", "other", "localhost"])
        deployment.run(["flwr", "supernode", "register", f"{key}.pub", "deployment"])
        authority = "other/ca.crt"
    process = deployment.start_node(NODES, key, authority=authority, options=["--max-retries", "1"])
    assert process.wait(60) == 1
    assert deployment.online() == NODES
