"""The example tasks of the documents end in the same model on devices as in a simulation.

Each task under each of four strategies.
"""

import os

import pytest

from tests.support.deployment import Deployment
from tests.support.example_tasks import TRAINED, keys_for, write
from tests.support.run_folders import assert_model, read_history, read_summary, simulated

# Further keys, so that each kind of setting is sent to devices.
OWN_KEYS = {
    "regression": {"partition": "shards", "partition-args": "by = 'bins:4'"},
    "labels": {"optimizer-state": "kept", "rate-schedule": "cosine"},
    "wine": {"fraction-evaluate": 1.0},
    "segments": {"gradient-clip": 1.0},
    "files": {"partition": "dirichlet"},
    "gan": {"local-epochs": 2},
    "quickstart": {"local-epochs": 1},
}
COMMON = {
    "num-clients": 2, "fraction-train": 1.0, "num-server-rounds": 2, "local-steps": 5,
    "batch-size": 20, "data-source": "auto", "seed": 5,
}  # fmt: skip

pytestmark = [pytest.mark.slow, pytest.mark.long]


def keys_of(name, strategy):
    own = {key.replace("_", "-"): value for key, value in keys_for(strategy, name).items()}
    keys = {"task": f"{name}_task:TASK", **COMMON, **own, **OWN_KEYS.get(name, {})}
    if strategy == "scaffold":  # it is defined for plain SGD
        keys = {key: keys[key] for key in keys if key not in ("optimizer-state", "rate-schedule")}
    if "local-epochs" in keys:
        del keys["local-steps"]
    return keys


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the tasks, for Python's path."""
    return write(tmp_path_factory.mktemp("tasks"))


@pytest.fixture(scope="module")
def deployment(folder, tmp_path_factory):
    """A SuperLink with two SuperNodes, whose environment has the tasks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder))
        with Deployment(tmp_path_factory.mktemp("deployment"), 2) as started:
            yield started


@pytest.mark.parametrize(("name", "strategy"), TRAINED)
def test_two_devices_end_in_the_model_of_the_simulation(
    name, strategy, folder, deployment, tmp_path
):
    keys = keys_of(name, strategy)
    found = deployment.train(tmp_path / "devices", **keys)
    environment = os.environ | {"PYTHONPATH": str(folder)}
    expected = simulated(tmp_path / "simulated", keys, env=environment)
    assert_model(found, expected)
    assert read_summary(found)["rejected-replies"] == 0
    for line, other in zip(read_history(found), read_history(expected), strict=True):
        for key in ("test_metrics", "client_metrics"):
            assert line[key] == pytest.approx(other[key], rel=1e-5)
