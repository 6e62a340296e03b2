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

# Other compressors on the same path.
LIKE_STC = ("dgc", "eden", "qsgd", "topk")
COMBINATIONS = [
    *((task, "fedavg") for task in tasks.names()),
    *(
        pytest.param("mnist-logistic", name, marks=pytest.mark.long if name in LIKE_STC else ())
        for name in strategies.names()
        if name != "fedavg"
    ),
]
# Their clients train without momentum.
WITHOUT_MOMENTUM = ("fednova", "scaffold")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def _ray():
    with ray_cluster("", 1, 0, "cpu") as started:
        started()
        yield


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tmp_path_factory.mktemp("data")


@pytest.mark.parametrize(("task", "strategy"), COMBINATIONS)
def test_two_rounds_end_in_the_same_model_on_both_grids(data, tmp_path, task, strategy):
    """Two of four clients a round, with momentum and evaluation on clients."""
    momentum = 0.0 if strategy in WITHOUT_MOMENTUM else 0.5
    config = RunConfig(
        task=task, strategy=strategy, data_dir=str(data_slices.write(task, data / task)),
        run_dir=str(tmp_path), num_clients=4, fraction_train=0.5, num_server_rounds=2,
        local_steps=2, batch_size=4, evaluate_every=2, target="none", learning_rate=0.01,
        momentum=momentum, fraction_evaluate=0.5, device="cpu", seed=3,
        partition="natural" if task.startswith("shakespeare") else "iid",
    )  # fmt: skip
    values = config.model_dump(by_alias=True)
    expected = run_here(config)
    with RayGrid(values, 4, 1) as grid:
        result = server_app.run(grid, prepare(config), grid.evaluation)

    assert [metrics.round for metrics in result.history] == [0, 1, 2]
    for metrics in result.history[1:]:
        assert (metrics.participants, metrics.rejected) == (2, {})
        assert np.isfinite(metrics.train_loss)
    initial = tasks.load(task).initial_model(3).state_dict()
    assert any(not np.array_equal(a.numpy(), initial[k].numpy()) for k, a in result.model.items())

    assert same_model(result, expected)
    # This process evaluates on several threads, a worker on one.
    losses = ([m.test_loss for m in run.history if m.round != 1] for run in (result, expected))
    ours, theirs = losses
    assert ours == pytest.approx(theirs, rel=1e-6)
    varying = {"seconds": 0, "test_loss": 0}
    for ours, theirs in zip(result.history, expected.history, strict=True):
        assert {**ours.as_json(), **varying} == {**theirs.as_json(), **varying}
