"""A compressed update of 70 MB from devices gives the model of a simulation, bit for bit."""

import os

import pytest

from tests.support.deployment import Deployment
from tests.support.machines import working_tree
from tests.support.run_folders import assert_model, only_folder, read_history, simulated

pytestmark = pytest.mark.long

# 35.8 million weights: 71.6 MB of float16.
TASK = '''"""A wide network for MNIST."""

from dataclasses import replace

from torch import nn

from tasks.mnist import MNIST_LOGISTIC


def network() -> nn.Module:
    """Return 784-45,000-10."""
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 45_000), nn.ReLU(), nn.Linear(45_000, 10))


TASK = replace(MNIST_LOGISTIC, name="wide", model=network)
'''
ARGUMENTS = "uplink = 'float16', feedback = 'none'"


@pytest.mark.timeout(1500)
def test_update_of_70_mb_arrives(tmp_path):
    project = tmp_path / "project"
    working_tree(project)
    (project / "tasks" / "wide.py").write_text(TASK)
    keys = {
        "task": "tasks.wide:TASK", "strategy": "compressed", "strategy-args": ARGUMENTS,
        "num-clients": 2, "fraction-train": 1.0, "local-steps": 1, "num-server-rounds": 1,
        "data-source": "embedded", "target": "none", "learning-rate": 0.01,
    }  # fmt: skip
    with Deployment(tmp_path / "deployment", 2) as deployment:
        runs = {"run-dir": str(tmp_path / "devices")}
        deployment.run_app(project, seconds=900, **keys, **runs)
    devices = only_folder(tmp_path / "devices")
    # The environment of the tests has the project as it is here, not its copy.
    environment = {**os.environ, "PYTHONPATH": str(project)}
    assert_model(devices, simulated(tmp_path / "ray", keys, cwd=project, env=environment))
    last = read_history(devices)[-1]
    assert not last["rejected"]
    assert last["bytes_up"] > 2 * 70_000_000
