"""RayGrid on two Ray nodes: a worker beside the driver, and one that is reached through a relay."""

import os
import re
import threading
from contextlib import suppress
from multiprocessing import AuthenticationError

import pytest
import ray
from ray._private import state as ray_state

from fedavg_app import server_app
from fedavg_app.config import RunConfig
from fedavg_app.ray_engine.local_connection import listen
from fedavg_app.ray_engine.ray_cluster import ray_cluster
from fedavg_app.ray_engine.ray_grid import RayGrid
from fedavg_app.ray_engine.relay import PART_BYTES, RelayedConnection, start_relay
from fedavg_app.server.evaluation import CentralEvaluation
from fedavg_app.server.preparation import prepare
from tests.support import faulty_task
from tests.support.in_process import same_model
from tests.support.local_grid import LocalGrid
from tests.support.processes import Processes, listening, parent, until

pytestmark = pytest.mark.slow

NUM_CLIENTS = 20
CONFIG = {
    "task": "tests.support.faulty_task:TASK",
    "data-source": "embedded",
    "num-clients": NUM_CLIENTS,
    "fraction-train": 0.5,
    "num-server-rounds": 5,
    "learning-rate": 0.05,
    "partition": "shards",
}
RELAY = "ray::Relay"


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
        with ray_cluster(address, 2, "auto", "cpu"):
            yield processes, flag


@pytest.fixture
def processes(nodes):
    return nodes[0]


@pytest.fixture
def flag(nodes):
    return nodes[1]


@pytest.fixture
def make_config(tmp_path):
    return lambda **changes: RunConfig(**{**CONFIG, **changes, "run-dir": str(tmp_path)})


def ray_grid(config):
    return RayGrid(config.model_dump(by_alias=True), NUM_CLIENTS, 2)


def run_in_process(config):
    grid = LocalGrid(config.model_dump(by_alias=True), NUM_CLIENTS)
    return server_app.run(grid, prepare(config), CentralEvaluation)


def remote_worker(grid, processes):
    """Return the process of the worker that is on the relay's node."""
    workers = grid.worker_process_ids()
    (relay,) = processes.living(RELAY)
    (worker,) = [pid for pid in workers if parent(pid) == parent(relay)]
    return worker


@pytest.mark.parametrize(
    "changes",
    [
        {"task": "mnist-2nn", "num-server-rounds": 2},
        {"strategy": "stc", "local-steps": 1, "num-server-rounds": 12},
    ],
    ids=["2nn", "stc"],
)
def test_two_nodes_train_the_same_model_as_one_process(make_config, processes, changes):
    config = make_config(**changes)
    with ray_grid(config) as grid:
        assert remote_worker(grid, processes)
        result = server_app.run(grid, prepare(config), grid.evaluation)
    assert not any(metrics.rejected for metrics in result.history)
    expected = run_in_process(config)
    assert same_model(expected, result)
    assert [m.test_loss for m in expected.history] == [m.test_loss for m in result.history]


@pytest.mark.parametrize("how", ["kill", "kill the relay"])
def test_killed_worker_or_relay_costs_one_reply(make_config, processes, flag, how):
    config = make_config()
    with ray_grid(config) as grid:
        before, remote = grid.worker_process_ids(), remote_worker(grid, processes)
        relays = processes.living(RELAY)
        flag.write_text(how)
        result = server_app.run(grid, prepare(config), CentralEvaluation)
        assert set(before) - set(grid.worker_process_ids()) == {remote}
        assert remote_worker(grid, processes) != remote
        assert not set(relays) & set(processes.living(RELAY))
    (reason,) = [reason for metrics in result.history for reason in metrics.rejected.values()]
    assert re.search(r"worker \d died: ", reason)
    assert len(result.history) == 6
    assert result.history[-1].accuracy > result.history[0].accuracy


def test_no_process_or_thread_is_left_when_the_grid_is_closed(make_config, processes):
    before = set(threading.enumerate())
    with ray_grid(make_config()) as grid:
        workers, relays = grid.worker_process_ids(), processes.living(RELAY)
        assert len(relays) == 1
        assert len(set(threading.enumerate()) - before) >= 2
    assert set(threading.enumerate()) <= before
    assert until(lambda: not set(processes.living()) & {*workers, *relays}, 30)


def test_only_ray_listens_on_the_network(make_config, processes):
    with ray_grid(make_config()) as grid:
        workers, relays = grid.worker_process_ids(), processes.living(RELAY)
        actors = ray_state.actors().values()
        of_ray = {(actor["Pid"], actor["Address"]["Port"]) for actor in actors}
        ends = {(pid, *end) for pid in (*workers, *relays) for end in listening(pid)}
        local = {end for end in ends if end[1] == "127.0.0.1"}
    assert {pid for pid, _, _ in local} == set(workers)
    assert {(pid, port) for pid, _, port in ends - local} <= of_ray


def test_relay_needs_the_secret_and_passes_on_messages_of_any_size(nodes):
    with listen(b"key") as listener:
        relay = start_relay()
        refusing = threading.Thread(target=refuse, args=[listener])
        refusing.start()
        with pytest.raises(ray.exceptions.RayError, match="AuthenticationError"):
            RelayedConnection(relay, listener.address, b"another key")
        refusing.join()

        echoing = threading.Thread(target=echo, args=[listener])
        echoing.start()
        connection = RelayedConnection(relay, listener.address, b"key")
        for size in (0, 1, PART_BYTES, 2**20 + 1, 2**25):
            data = os.urandom(size)
            connection.send_bytes(data)
            assert connection.recv_bytes() == data
        connection.close()
        echoing.join(30)
        assert not echoing.is_alive()


def refuse(listener):
    with pytest.raises(AuthenticationError):
        listener.accept()


def echo(listener):
    with listener.accept() as connection, suppress(EOFError, OSError):
        while True:
            connection.send_bytes(connection.recv_bytes())
