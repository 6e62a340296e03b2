"""Every task and strategy ends in the same model on RayGrid as in one process.

test_short_runs.py has a whole `flwr run`, and a deployment.
"""

import numpy as np
import pytest

import strategies
import tasks
from fedavg_app import server_app
from fedavg_app.config import RunConfig
from fedavg_app.ray_engine.ray_cluster import ray_cluster
from fedavg_app.ray_engine.ray_grid import RayGrid
from fedavg_app.server.preparation import prepare
from tests.support import data_slices
from tests.support.in_process import run_here, same_model

# test_ray_grid.py has more of FedAvg and STC, whose path those of other compressors are.
LIKE_STC = ("stc", "eden", "qsgd", "topk", "signsgd", "compressed", "fedavg")
# Each kind of network and data, and the strategies with most state, are slow; all others are long.
SLOW = ("mnist-cnn", "shakespeare-lstm", "yelp-stars", "fedbuff", "scaffold")
COMBINATIONS = [
    pytest.param(task, strategy, marks=() if {task, strategy} & set(SLOW) else pytest.mark.long)
    for task, strategy in (
        *((task, "fedavg") for task in tasks.names()),
        *(("mnist-logistic", name) for name in strategies.names() if name not in LIKE_STC),
    )
]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def _ray():
    with ray_cluster("", 1, 0, "cpu") as started:
        started.result()
        yield


@pytest.mark.parametrize(("task", "strategy"), COMBINATIONS)
def test_two_rounds_end_in_the_same_model_on_both_grids(tmp_path, task, strategy):
    """Two of four clients a round, with momentum where it is defined, and evaluation on clients."""
    config = RunConfig(
        task=task, strategy=strategy, data_dir=str(data_slices.write(task, tmp_path / "data")),
        run_dir=str(tmp_path / "runs"), num_clients=4, fraction_train=0.5, num_server_rounds=2,
        local_steps=2, batch_size=4, evaluate_every=2, target="none", learning_rate=0.01,
        momentum=0.0 if strategy in ("fednova", "scaffold") else 0.5,
        fraction_evaluate=0.0 if strategy == "secure-sum" else 0.5,
        device="cpu", seed=3, partition="natural" if task.startswith("shakespeare") else "iid",
    )  # fmt: skip
    expected = run_here(config)
    with RayGrid(config.model_dump(by_alias=True), 4, 1) as grid:
        result = server_app.run(grid, prepare(config), grid.evaluation)
    assert same_model(result, expected)
    initial = tasks.load(task).initial_model(3).state_dict()
    assert any(not np.array_equal(a.numpy(), initial[k].numpy()) for k, a in result.model.items())
    for ours, theirs in zip(result.history, expected.history, strict=True):
        assert (ours.participants, ours.rejected) == (2 if ours.round else 0, {})
        if ours.round != 1:  # this process evaluates on several threads, a worker on one
            assert ours.test_loss == pytest.approx(theirs.test_loss, rel=1e-6)
        varying = {"seconds": 0, "test_loss": 0}
        assert {**ours.as_json(), **varying} == {**theirs.as_json(), **varying}
