"""Secure sums in the three ways to run the app: the same model, and on devices that sign."""

import pytest

from tests.e2e.test_short_runs import run_under_flwr, simulate
from tests.support.deployment import Deployment
from tests.support.run_folders import assert_model, read_summary
from tests.support.secure_network import identities

pytestmark = pytest.mark.slow

NUM_CLIENTS = 3
KEYS = {
    "task": "mnist-logistic", "data-source": "embedded", "num-clients": NUM_CLIENTS,
    "fraction-train": 1.0, "num-server-rounds": 3, "strategy": "secure-sum", "local-steps": 5,
    "seed": 5,
}  # fmt: skip


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    folder, done = simulate(KEYS, tmp_path_factory.mktemp("simulated"))
    assert "the server (honest but curious) sees the sum" in done.stderr
    return folder


@pytest.mark.long
def test_flwr_run_trains_the_model_of_the_simulation(simulated, tmp_path):
    assert_model(run_under_flwr(KEYS, tmp_path), simulated)


def test_devices_that_sign_train_the_model_of_the_simulation(simulated, tmp_path):
    own = identities(tmp_path / "keys", NUM_CLIENTS)
    with Deployment(tmp_path / "deployment", 0) as deployment:
        for number, keys in enumerate(own):
            signing = " ".join(f'{key}="{path}"' for key, path in keys.items())
            parts = f"partition-id={number} num-partitions={NUM_CLIENTS}"
            deployment.add_node(number, f"{parts} {signing}")
        deployment.wait_for_devices(NUM_CLIENTS)
        keys = {**KEYS, "strategy-args": "signed = true"}
        folder = deployment.train(tmp_path / "runs", **keys)
    assert_model(folder, simulated)
    assert read_summary(folder)["rejected-replies"] == 0
