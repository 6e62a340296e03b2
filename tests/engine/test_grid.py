"""RayGrid on real Ray actors."""

import os
import re
import signal
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict

from fedavg_app.config import RunConfig
from fedavg_app.engine import schedule
from fedavg_app.engine.cluster import cluster
from fedavg_app.engine.grid import RayGrid
from fedavg_app.engine.link import Link
from fedavg_app.evaluation import CentralTest
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
    with cluster("", 4, "auto", "cpu"):
        yield path
    del os.environ[faulty_task.FLAG]


def run_config(tmp_path, **changes):
    values = {**CONFIG, **changes, "run-dir": str(tmp_path)}
    return RunConfig(**values).model_dump(by_alias=True)


def faulty_config(tmp_path, timeout):
    changes = {"round-timeout": timeout, "fraction-evaluate": 0}
    return run_config(tmp_path, task="tests.engine.faulty_task:TASK", **changes)


def model(outcome):
    return [array.numpy() for array in outcome.arrays.values()]


def run_on_ray(config, workers, **options):
    with RayGrid(config, config["num-clients"], workers, **options) as grid:
        return run(grid, config, grid.evaluation)


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(model(a), model(b), strict=True))


def gone(pids):
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and any(Path(f"/proc/{pid}").exists() for pid in pids):
        time.sleep(0.1)
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"strategy": "fedsgd", "momentum": 0.5},
        {"task": "mnist-2nn", "num-server-rounds": 2},
        {"strategy": "stc", "local-steps": 1, "num-server-rounds": 12},
    ],
    ids=["fedavg", "fedsgd", "2nn", "stc"],
)
def test_everything_is_bit_identical_on_1_2_and_4_workers_and_without_ray(tmp_path, changes):
    config = run_config(tmp_path, **changes)
    here = run(LocalGrid(config, 20), config)
    for workers in (1, 2, 4):
        there = run_on_ray(config, workers)
        assert same(here, there)
        for a, b in zip(here.records, there.records, strict=True):
            assert (a.accuracy, a.test_loss, a.train_loss) == (
                b.accuracy,
                b.test_loss,
                b.train_loss,
            )
            assert a.client_metrics == b.client_metrics
            assert (a.bytes_up, a.bytes_down) == (b.bytes_up, b.bytes_down)


def test_clients_that_move_from_worker_to_worker_change_nothing(tmp_path, monkeypatch):
    config = run_config(tmp_path, strategy="stc", **{"local-steps": 1, "num-server-rounds": 12})
    monkeypatch.setattr(schedule, "MOVE_SECONDS", 0.0)
    asked = []
    ask = Link.ask
    monkeypatch.setattr(Link, "ask", lambda *call: (asked.append(call[1]), ask(*call))[1])
    with RayGrid(config, config["num-clients"], 4) as grid:
        grid.worker_process_ids()  # all have started: the first could do all the rounds alone
        there = run(grid, config, grid.evaluation)
    assert asked.count("release") == asked.count("adopt") > 5
    assert same(there, run(LocalGrid(config, 20), config))


def test_clients_that_were_too_slow_for_their_round_remember_all_the_same(tmp_path):
    """Twice as many are asked as needed: half of them are still at it in the next round."""
    changes = {"strategy": "stc", "momentum": 0.5, "over-selection": 1.0, "fraction-evaluate": 0}
    config = run_config(tmp_path, **changes, **{"num-server-rounds": 20, "evaluate-every": 5})
    outcome = run_on_ray(config, 4)
    assert [record.participants for record in outcome.records[1:]] == [20] * 20
    assert [record.rejected for record in outcome.records] == [{}] * 21
    # No client was sent the whole model but when it was new, or had not answered in time so far.
    model_bytes, first = 7850 * 4, outcome.records[1].bytes_down
    assert first > 20 * model_bytes
    assert all(record.bytes_down < 20 * model_bytes for record in outcome.records[2:])
    assert sum(record.bytes_down > 10 * model_bytes for record in outcome.records[2:]) < 10
    assert outcome.records[-1].accuracy > outcome.records[0].accuracy + 0.1


def test_an_interrupt_that_gets_lost_is_raised_again(tmp_path):
    before = signal.getsignal(signal.SIGINT)
    with RayGrid(run_config(tmp_path), 20, 1) as grid:
        grid.wait(0)
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            grid.wait(0)
    assert signal.getsignal(signal.SIGINT) is before


def test_states_on_disk_change_nothing(tmp_path):
    config = run_config(tmp_path, strategy="stc", **{"local-steps": 1, "num-server-rounds": 8})
    with RayGrid(config, 20, 2, state_memory=0) as grid:
        run(grid, config)
        on_disk = list(Path(grid.folder).glob("*/*.pickle"))
        there = [array.numpy() for array in run(LocalGrid(config, 20), config).arrays.values()]
    assert len(on_disk) == 20
    assert not Path(grid.folder).exists()
    here = run_on_ray(config, 2, state_memory=0)
    assert all(np.array_equal(a, b) for a, b in zip(model(here), there, strict=True))


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


def test_a_killed_worker_costs_the_message_it_was_at(tmp_path, flag):
    config = run_config(tmp_path, task="tests.engine.faulty_task:TASK", **{"fraction-evaluate": 0})
    with RayGrid(config, 20, 2) as grid:
        before = grid.worker_process_ids()
        flag.write_text("kill")
        outcome = run(grid, config)
        after = grid.worker_process_ids()
    failed = [record for record in outcome.records if record.rejected]
    assert len(failed) == 1
    (reason,) = failed[0].rejected.values()
    assert re.search(r"worker \d died: ", reason)
    assert len(set(before) - set(after)) == 1
    assert len(outcome.records) == 6
    assert outcome.records[-1].accuracy > outcome.records[0].accuracy


def test_a_worker_killed_between_rounds_costs_stateless_clients_nothing(tmp_path):
    config = run_config(tmp_path)
    with RayGrid(config, 20, 2) as grid:

        def evaluation(*arguments):
            test = CentralTest(*arguments)

            def test_and_kill(arrays):
                pids.append(grid.worker_process_ids()[0])
                os.kill(pids[-1], signal.SIGKILL)
                assert gone(pids)
                return test(arrays)

            return test_and_kill

        pids = []
        disturbed = run(grid, config, evaluation)
    assert len(set(pids)) == 6
    assert not any(record.rejected for record in disturbed.records)
    assert same(disturbed, run(LocalGrid(config, 20), config))


def test_a_worker_that_dies_testing_the_model_costs_nothing(tmp_path, flag):
    config = run_config(tmp_path, task="tests.engine.faulty_task:TASK")
    with RayGrid(config, 20, 2) as grid:
        before = grid.worker_process_ids()
        flag.write_text("kill")
        outcome = run(grid, config, grid.evaluation)
        assert len(set(before) - set(grid.worker_process_ids())) == 1
    assert not any(record.rejected for record in outcome.records)
    undisturbed = run(LocalGrid(config, 20), config)
    assert [r.test_loss for r in outcome.records] == [r.test_loss for r in undisturbed.records]


def test_a_client_that_sleeps_past_the_deadline_costs_its_reply_only(tmp_path, flag):
    config = faulty_config(tmp_path, 5)
    with RayGrid(config, 20, 2) as grid:
        pids = grid.worker_process_ids()
        flag.write_text("sleep")
        outcome = run(grid, config)
        assert grid.worker_process_ids() == pids
    failed = [record for record in outcome.records if record.rejected]
    assert len(failed) == 1
    assert set(failed[0].rejected.values()) == {"error 2: still at work at the round's deadline"}
    assert failed[0].seconds < 6


def test_a_worker_that_hangs_where_nothing_reaches_it_is_replaced(tmp_path, flag):
    config = faulty_config(tmp_path, 3)
    with RayGrid(config, 20, 2) as grid:
        pids = grid.worker_process_ids()
        flag.write_text("compute")
        outcome = run(grid, config)
        until = time.monotonic() + 10
        while grid.worker_process_ids() == pids and time.monotonic() < until:
            grid.pull_messages([])
            grid.wait(0.1)
        lost = set(pids) - set(grid.worker_process_ids())
        assert len(lost) == 1
        assert gone(lost)
    failed = [record for record in outcome.records if record.rejected]
    assert failed
    assert {r for record in failed for r in record.rejected.values()} <= {
        "no reply in time", "error 2: not begun before the round's deadline",
    }  # fmt: skip
    assert outcome.records[-1].accuracy > outcome.records[0].accuracy


def test_workers_end_with_the_grid(tmp_path):
    config = run_config(tmp_path)
    with RayGrid(config, 20, 2) as grid:
        pids = grid.worker_process_ids()
        assert all(Path(f"/proc/{pid}").exists() for pid in pids)
    assert gone(pids)


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
