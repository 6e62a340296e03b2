"""RayGrid on two Ray nodes: a worker beside the driver, and one that is reached by Ray calls."""

import pytest

from fedavg_app import server_app
from fedavg_app.ray_engine.ray_cluster import ray_cluster
from fedavg_app.ray_engine.ray_grid import RayGrid
from fedavg_app.server.preparation import prepare
from tests.support.in_process import make_config, run_here, same_model
from tests.support.processes import Processes, parent

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def nodes():
    """Start Ray on two nodes with one CPU each, and join the first."""
    with Processes() as processes:
        address = processes.ray_head(cpus=1)
        # An address of its own: the driver joins the node that has this machine's.
        processes.ray(f"--address={address}", "--num-cpus=1", "--node-ip-address=127.0.0.2")
        with ray_cluster(address, 2, "auto", "cpu") as started:
            started()
            yield processes


def remote_worker(grid, processes):
    """Return the process of the worker on the second node."""
    # Those that a raylet has just forked have its command line, too.
    raylets = processes.living("--node_ip_address=127.0.0.2")
    (worker,) = [pid for pid in grid.worker_process_ids() if parent(pid) in raylets]
    return worker


@pytest.mark.parametrize(
    "changes",
    [
        {"task": "mnist-2nn", "num-server-rounds": 2},
        {"strategy": "stc", "local-steps": 1, "num-server-rounds": 12},
    ],
    ids=["2nn", "stc"],
)
def test_two_nodes_train_the_same_model_as_one_process(nodes, tmp_path, changes):
    config = make_config(**{"fraction-train": 0.5, **changes}, run_dir=str(tmp_path))
    with RayGrid(config.model_dump(by_alias=True), config.num_clients, 2) as grid:
        assert remote_worker(grid, nodes)
        result = server_app.run(grid, prepare(config), grid.evaluation)
    assert not any(metrics.rejected for metrics in result.history)
    expected = run_here(config)
    assert same_model(expected, result)
    assert [m.test_loss for m in expected.history] == [m.test_loss for m in result.history]
