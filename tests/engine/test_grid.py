"""RayGrid on real Ray actors."""

import os
import time
from pathlib import Path

import numpy as np
import pytest
import ray
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict

from fedavg_app.config import RunConfig
from fedavg_app.engine.grid import RayGrid
from fedavg_app.exchange import exchange
from fedavg_app.server_app import run
from tests.engine import faulty_task
from tests.fedavg_app.local_grid import LocalGrid

pytestmark = pytest.mark.slow

CONFIG = {
    "task": "mnist-logistic",
    "data-source": "embedded",
    "num-clients": 20,
    "fraction-train": 0.5,
    "fraction-evaluate": 0.2,
    "num-server-rounds": 5,
    "learning-rate": 0.05,
    "partition": "shards",
}


@pytest.fixture(scope="module", autouse=True)
def flag(tmp_path_factory):
    """Start Ray; its actors inherit the file that makes faulty clients fail."""
    path = tmp_path_factory.mktemp("faulty") / "flag"
    os.environ[faulty_task.FLAG] = str(path)
    os.environ[faulty_task.DRIVER] = str(os.getpid())
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield path
    ray.shutdown()
    del os.environ[faulty_task.FLAG]


def run_config(tmp_path, **changes):
    values = {**CONFIG, **changes, "run-dir": str(tmp_path)}
    return RunConfig(**values).model_dump(by_alias=True)


def model(outcome):
    return [array.numpy() for array in outcome.arrays.values()]


def run_on_ray(config, workers):
    with RayGrid(config, config["num-clients"], workers) as grid:
        return run(grid, config)


@pytest.mark.parametrize("changes", [{}, {"strategy": "fedsgd"}, {"task": "mnist-2nn"}])
def test_the_model_is_bit_identical_on_1_and_2_workers_and_without_ray(tmp_path, changes):
    config = run_config(tmp_path, **changes)
    one, two = run_on_ray(config, 1), run_on_ray(config, 2)
    here = run(LocalGrid(config, 20), config)
    for a, b, c in zip(model(one), model(two), model(here), strict=True):
        assert np.array_equal(a, b)
        assert np.array_equal(a, c)
    for a, b in zip(one.records, two.records, strict=True):
        assert a.accuracy == b.accuracy
        assert a.client_metrics == b.client_metrics
        assert (a.bytes_up, a.bytes_down) == (b.bytes_up, b.bytes_down)


def test_a_client_that_raises_costs_its_reply_only(tmp_path, flag):
    config = run_config(tmp_path, task="tests.engine.faulty_task:TASK")
    with RayGrid(config, 20, 1) as grid:
        flag.write_text("raise")
        outcome = run(grid, config)
    failed = [record for record in outcome.records if record.rejected]
    assert len(failed) == 1
    (reason,) = failed[0].rejected.values()
    assert reason.endswith("ValueError: this client's disk is broken")
    assert outcome.records[-1].accuracy > outcome.records[0].accuracy


def test_a_killed_worker_costs_its_messages_of_the_moment_only(tmp_path, flag):
    config = run_config(tmp_path, task="tests.engine.faulty_task:TASK", **{"fraction-evaluate": 0})
    with RayGrid(config, 20, 2) as grid:
        before = grid.worker_process_ids()
        flag.write_text("kill")
        outcome = run(grid, config)
        after = grid.worker_process_ids()
    failed = [record for record in outcome.records if record.rejected]
    assert len(failed) == 1
    assert 1 <= len(failed[0].rejected) < failed[0].participants
    assert all("worker" in reason for reason in failed[0].rejected.values())
    assert len(set(before) - set(after)) == 1
    assert len(outcome.records) == 6
    assert outcome.records[-1].accuracy > outcome.records[0].accuracy


def test_workers_end_with_the_grid(tmp_path):
    config = run_config(tmp_path)
    with RayGrid(config, 20, 2) as grid:
        pids = grid.worker_process_ids()
        assert all(Path(f"/proc/{pid}").exists() for pid in pids)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and any(Path(f"/proc/{pid}").exists() for pid in pids):
        time.sleep(0.1)
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_a_malformed_message_is_answered_with_an_error(tmp_path):
    config = run_config(tmp_path)
    with RayGrid(config, 20, 1) as grid:
        node = list(grid.get_node_ids())[3]
        content = RecordDict({"arrays": ArrayRecord(), "config": ConfigRecord()})
        bad = Message(content, dst_node_id=node, message_type="train")
        unknown = Message(RecordDict(), dst_node_id=node, message_type="train.unknown")
        replies = exchange(grid, [bad, unknown])
    assert len(replies) == 2
    assert all(reply.has_error() for reply in replies)
    assert {reply.metadata.src_node_id for reply in replies} == {node}
