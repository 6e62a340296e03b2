"""docs/deployment.md with real processes: a SuperLink, SuperNodes, TLS and authentication."""

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

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
from tests.docs.reading import ROOT, blocks

BIN = Path(sys.executable).parent
TEXT = (ROOT / "docs" / "deployment.md").read_text()
NODES = 3

pytestmark = pytest.mark.slow


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class Deployment:
    """The document's commands on this machine, in a folder of their own."""

    def __init__(self, folder):
        self.folder, self.port = folder, free_port()
        (folder / "deploy").symlink_to(ROOT / "deploy")
        self.processes = {}
        self.environment = {
            **os.environ,
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "FLWR_HOME": str(folder / "home"),
            "FLWR_TELEMETRY_ENABLED": "0",
        }
        (folder / "home").mkdir()
        toml = next(text for language, text in blocks(TEXT) if language == "toml")
        toml = toml.replace("/absolute/path/to", str(folder / "certificates"))
        (folder / "home" / "config.toml").write_text(self.here(toml))

    def here(self, text):
        """Return the document's text with this machine's names."""
        return text.replace("superlink.example.org:8000", f"localhost:{self.port}").replace(
            "superlink.example.org 192.0.2.10", "localhost 127.0.0.1"
        )

    def command(self, program, part=""):
        """Return the words of the document's one command of that program that has the part."""
        lines = [
            line
            for language, text in blocks(TEXT)
            if language == "sh"
            for line in text.replace("\\\n", " ").splitlines()
            if line.startswith(program) and part in line
        ]
        assert len(lines) == 1, lines
        return shlex.split(self.here(lines[0]))

    def run(self, words, cwd=None):
        return subprocess.run(
            words, cwd=cwd or self.folder, env=self.environment, capture_output=True, text=True,
            timeout=300, check=True,
        )  # fmt: skip

    def start(self, name, words):
        """Start a process group; its output goes to a file."""
        log = (self.folder / f"{name}.log").open("w")
        self.processes[name] = subprocess.Popen(
            words, cwd=self.folder, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            env={**self.environment, "FLWR_HOME": str(self.folder / f"home-{name}")},
        )  # fmt: skip
        return self.processes[name]

    def wait_for(self, condition, seconds=90):
        end = time.monotonic() + seconds
        while not condition():
            logs = "\n".join(p.read_text()[-1500:] for p in self.folder.glob("*.log"))
            assert time.monotonic() < end, logs
            time.sleep(0.3)

    def listening(self):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def online(self):
        shown = self.run(["flwr", "supernode", "list", "deployment", "--format", "json"]).stdout
        return sum(node["status"] == "online" for node in json.loads(shown)["nodes"])

    def add_node(self, number, config=None):
        """Make a device's key, register it, and start it, as the document does."""
        key = f"device-{number}"
        for words in (self.command("ssh-keygen"), self.command("flwr supernode register")):
            self.run([word.replace("device-0", key) for word in words])
        return self.start_node(number, key, config)

    def start_node(self, number, key, config=None, authority=None):
        words = self.command("deploy/supernode.sh", "num-partitions")
        words = [word.replace("device-0", key) for word in words]
        words[4] = config or words[4].replace("partition-id=0", f"partition-id={number}")
        words[2] = authority or words[2]
        return self.start(key, [*words, "--port", str(free_port()), "--max-retries", "1"])

    def train(self, runs, **keys):
        """Run the app; return the newest run's folder."""
        words = self.command("flwr run")
        words[-1] = words[-1].replace("num-server-rounds=3", "num-server-rounds=2")  # 12 s each
        keys = {"run-dir": str(runs), "data-source": "embedded", "task": "mnist-logistic", **keys}
        words[-1] += "".join(
            f" {key}={f'{value!r}' if isinstance(value, str) else value}"
            for key, value in keys.items()
        )
        done = self.run(words, cwd=ROOT)
        listed = self.run([*self.command("flwr ls"), "--format", "json"]).stdout
        newest = json.loads(listed)["runs"][0]
        assert newest["status"] == "finished:completed", done.stdout + done.stderr
        return max(runs.iterdir(), key=lambda folder: folder.stat().st_mtime)

    def stop(self):
        for process in self.processes.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
        for process in self.processes.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def deployment(tmp_path_factory):
    found = Deployment(tmp_path_factory.mktemp("deployment"))
    try:
        found.run(found.command("deploy/certificates.sh"))
        superlink = found.command("deploy/superlink.sh")
        found.start("superlink", [*superlink, "--host", "127.0.0.1", "--port", str(found.port)])
        found.wait_for(found.listening)
        for number in range(NODES):
            found.add_node(number)
        found.wait_for(lambda: found.online() == NODES)
        yield found
    finally:
        found.stop()


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
