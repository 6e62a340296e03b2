"""RayGrid on two Ray nodes: a worker beside the driver, and one that is reached by Ray calls."""

import re

import pytest

from fedavg_app import server_app
from fedavg_app.ray_engine.ray_cluster import ray_cluster
from fedavg_app.ray_engine.ray_grid import RayGrid
from fedavg_app.server.global_evaluation import CentralEvaluation
from fedavg_app.server.preparation import prepare
from tests.support import faulty_task, in_process
from tests.support.in_process import run_here, same_model
from tests.support.processes import Processes, parent

pytestmark = pytest.mark.slow

CONFIG = {
    "task": "tests.support.faulty_task:TASK", "fraction-train": 0.5, "num-server-rounds": 5,
}  # fmt: skip


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    """Start Ray on two nodes with one CPU each, and join the first.

    Only processes of the second have the path of the flag that makes clients fail, which is given
    back with the processes.
    """
    flag = tmp_path_factory.mktemp("faulty") / "flag"
    with Processes() as processes:
        address = processes.ray_head(cpus=1)
        processes.environment[faulty_task.FLAG] = str(flag)
        # An address of its own: the driver joins the node that has this machine's.
        processes.ray(f"--address={address}", "--num-cpus=1", "--node-ip-address=127.0.0.2")
        with ray_cluster(address, 2, "auto", "cpu") as started:
            started()
            yield processes, flag


@pytest.fixture
def make_config(tmp_path):
    return lambda **changes: in_process.make_config(**{**CONFIG, **changes}, run_dir=str(tmp_path))


def ray_grid(config):
    return RayGrid(config.model_dump(by_alias=True), config.num_clients, 2)


def remote_worker(grid, processes):
    """Return the process of the worker on the second node."""
    (raylet,) = processes.living("--node_ip_address=127.0.0.2")
    (worker,) = [pid for pid in grid.worker_process_ids() if parent(pid) == raylet]
    return worker


@pytest.mark.parametrize(
    "changes",
    [
        {"task": "mnist-2nn", "num-server-rounds": 2},
        {"strategy": "stc", "local-steps": 1, "num-server-rounds": 12},
    ],
    ids=["2nn", "stc"],
)
def test_two_nodes_train_the_same_model_as_one_process(make_config, nodes, changes):
    config, (processes, _) = make_config(**changes), nodes
    with ray_grid(config) as grid:
        assert remote_worker(grid, processes)
        result = server_app.run(grid, prepare(config), grid.evaluation)
    assert not any(metrics.rejected for metrics in result.history)
    expected = run_here(config)
    assert same_model(expected, result)
    assert [m.test_loss for m in expected.history] == [m.test_loss for m in result.history]


def test_killed_worker_of_the_second_node_is_replaced(make_config, nodes):
    config, (processes, flag) = make_config(), nodes
    with ray_grid(config) as grid:
        before, remote = grid.worker_process_ids(), remote_worker(grid, processes)
        flag.write_text("kill")
        result = server_app.run(grid, prepare(config), CentralEvaluation)
        assert set(before) - set(grid.worker_process_ids()) == {remote}
        assert remote_worker(grid, processes) != remote
    reasons = {reason for metrics in result.history for reason in metrics.rejected.values()}
    assert len(reasons) == 1
    assert re.match(r"worker \d died: its process crashed or was killed \(", reasons.pop())
    assert len(result.history) == 6
    assert result.history[-1].accuracy > result.history[0].accuracy
