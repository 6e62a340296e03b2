import json
import logging
import os
import re
import signal
import threading
import time
from collections import Counter
from concurrent.futures import Future
from pathlib import Path

import pytest

from fedavg_app import server_app
from fedavg_app.callbacks.base import Callback
from fedavg_app.errors import RunError
from fedavg_app.ray_engine.ray_cluster import ray_cluster
from fedavg_app.ray_engine.ray_grid import RayGrid
from fedavg_app.server.global_evaluation import CentralEvaluation
from fedavg_app.server.preparation import prepare
from strategies.rounds.reply_errors import MAX_FILE
from tests.support import faulty_task, in_process
from tests.support.in_process import run_here, same_model
from tests.support.processes import until

pytestmark = pytest.mark.slow

CONFIG = {"fraction-train": 0.5, "fraction-evaluate": 0.2, "num-server-rounds": 5}
FAULTY = {"task": "tests.support.faulty_task:TASK", "fraction-evaluate": 0.0}


@pytest.fixture(scope="module", autouse=True)
def flag(tmp_path_factory):
    """Start Ray; its actors inherit the path of the file that makes clients of `FAULTY` fail."""
    path = tmp_path_factory.mktemp("faulty") / "flag"
    os.environ[faulty_task.FLAG] = str(path)
    os.environ[faulty_task.DRIVER] = str(os.getpid())
    with ray_cluster("", 4, "auto", "cpu") as started:
        started.result()
        yield path
    del os.environ[faulty_task.FLAG], os.environ[faulty_task.DRIVER]


@pytest.fixture
def make_config(tmp_path):
    return lambda **changes: in_process.make_config(**{**CONFIG, **changes}, run_dir=str(tmp_path))


def ray_grid(config, num_workers, **options):
    run_config = config.model_dump(by_alias=True)
    return RayGrid(run_config, config.num_clients, num_workers, **options)


def run(grid, config, evaluation=CentralEvaluation):
    return server_app.run(grid, prepare(config), evaluation)


def run_on_ray(config, num_workers, **options):
    with ray_grid(config, num_workers, **options) as grid:
        grid.worker_process_ids()  # waits until all have started
        return run(grid, config, grid.evaluation)


def all_ended(pids):
    return until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), 60)


@pytest.mark.parametrize(
    ("changes", "workers"),
    [
        ({}, (1, 4)),
        ({"strategy": "stc", "local-steps": 1, "num-server-rounds": 12}, (1, 4)),
        ({"strategy": "stc", "local-steps": 1, "links": "phones", "round-timeout": 0.2}, (2,)),
        ({"strategy": "stc", "local-steps": 1, "selection": "power-of-choice"}, (2,)),
        (
            {"task": "tests.support.networks:TRANSFORMED", "partition": "iid",
             "num-server-rounds": 3, "validation": 0.2},
            (2,),
        ),
        ({"validation": 0.2}, (2,)),
    ],
    ids=["fedavg", "stc", "virtual-clock", "selection", "random-transforms", "validation"],
)  # fmt: skip
def test_result_is_bit_identical_on_any_number_of_workers_and_in_process(
    make_config, changes, workers
):
    config = make_config(**changes)
    expected, varying = run_here(config), {"seconds": 0, "rejected": {}}  # has each grid's own ids
    for num_workers in workers:
        result = run_on_ray(config, num_workers)
        assert same_model(expected, result)
        for a, b in zip(expected.history, result.history, strict=True):
            assert {**a.as_json(), **varying} == {**b.as_json(), **varying}


def test_result_is_bit_identical_if_the_driver_trains_until_workers_have_started(make_config):
    """Clients keep their residuals and momenta from the driver's rounds to the workers'."""
    config = make_config(
        strategy="stc", local_steps=1, momentum=0.5, num_server_rounds=12, fraction_train=0.5
    )
    ready: Future = Future()  # as if Ray had started after round 4

    class StartAfterRound4(Callback):
        def on_round_end(self, metrics, _):
            if metrics.round <= 4:
                assert grid.worker_process_ids() == [os.getpid()]
            if metrics.round == 4:
                ready.set_result((2, 0.0))
            if metrics.round == 6:
                grid.worker_process_ids()  # waits until all have started

    with ray_grid(config, 0, resources=ready) as grid:
        callbacks = [lambda _: StartAfterRound4()]
        result = server_app.run(grid, prepare(config), grid.evaluation, callbacks)
        assert len(grid.worker_process_ids()) == 2
        assert os.getpid() not in grid.worker_process_ids()
    assert same_model(run_here(config), result)
    assert not any(metrics.rejected or metrics.lost_states for metrics in result.history)


def test_clients_too_late_for_their_round_keep_their_state(make_config, monkeypatch):
    """Over-selection asks all 20 clients where 10 replies end a round."""
    changes = {"strategy": "stc", "momentum": 0.5, "over-selection": 1.0, "fraction-evaluate": 0}
    config = make_config(**changes, **{"num-server-rounds": 20, "evaluate-every": 5})
    prepared = prepare(config)
    full_models, accepted = {}, {}  # by round: the nodes sent the full model, those accepted
    with ray_grid(config, 4) as grid:
        strategy = prepared.strategy.strategy
        push, step = grid.push_messages, strategy.step

        def record_sent(messages):
            sent = list(messages)
            for message in sent:
                if "arrays" in message.content:
                    server_round = int(message.metadata.group_id)
                    full_models.setdefault(server_round, set()).add(message.metadata.dst_node_id)
            return push(sent)

        def record_accepted(now, aggregate):
            accepted[now.number] = set(aggregate.nodes)
            return step(now, aggregate)

        monkeypatch.setattr(grid, "push_messages", record_sent)
        monkeypatch.setattr(strategy, "step", record_accepted)
        result = server_app.run(grid, prepared, grid.evaluation)
    assert [metrics.participants for metrics in result.history[1:]] == [20] * 20
    # A client that had lost its state would ask for the model, which is a rejected reply.
    assert [metrics.rejected for metrics in result.history] == [{}] * 21
    # The full model went only to clients of which no reply had been in time so far.
    known = set()
    for server_round in range(1, 21):
        assert full_models.get(server_round, set()) == set(grid.get_node_ids()) - known
        assert len(accepted[server_round]) >= 10
        known |= accepted[server_round]
    assert any(len(nodes) < 20 for nodes in accepted.values()), "some were late"
    assert result.history[-1].accuracy > result.history[0].accuracy + 0.1


def test_clients_with_a_state_move_to_idle_workers_where_they_take_long(make_config, flag):
    changes = {"strategy": "stc", "momentum": 0.5, "local-steps": 1, "num-server-rounds": 10}
    busy = make_config(**changes, **{"client-mods": "tests.support.client_mods:busy"})
    with ray_grid(busy, 4) as grid:
        grid.worker_process_ids()
        result = run(grid, busy)
    assert same_model(result, run_here(make_config(**changes)))
    assert not any(metrics.rejected for metrics in result.history)
    rounds, seen, checked, processes = {}, set(), 0, {}
    for line in flag.with_name("busy").read_text().splitlines():
        server_round, node, process = line.split()
        rounds.setdefault(int(server_round), []).append((node, process))
    for _, handled in sorted(rounds.items()):
        nodes = {node for node, _ in handled}
        if nodes <= seen:  # those without a state go to whichever worker is free
            assert max(Counter(process for _, process in handled).values()) <= 3  # of 10, by 4
            checked += 1
        seen |= nodes
        for node, process in handled:
            processes.setdefault(node, set()).add(process)
    assert checked >= 3
    assert any(len(had) > 1 for had in processes.values())


@pytest.mark.parametrize(
    ("num_workers", "changes"),
    [
        (1, {}),
        (2, {}),
        (1, {"strategy": "stc", "local-steps": 2, "momentum": 0.9}),
        (1, {"strategy": "flwr.serverapp.strategy:FedAvg"}),
    ],
    ids=["fedavg", "two workers", "stc", "of Flower"],
)
def test_mod_that_overwrites_what_a_client_is_given_reaches_no_other_client(
    make_config, changes, num_workers
):
    mod = "overwriting_records" if "momentum" in changes else "overwriting"
    overwriting = {"client-mods": f"tests.support.client_mods:{mod}"}
    expected = run_here(make_config(**changes))
    result = run_on_ray(make_config(**changes, **overwriting), num_workers)
    assert not any(metrics.rejected for metrics in result.history)
    assert same_model(result, expected)
    found, wanted = ([m.client_metrics for m in run.history] for run in (result, expected))
    assert found == wanted


def test_client_that_raises_loses_only_its_reply_whose_error_has_the_traceback(
    make_config, flag, monkeypatch, caplog
):
    config = make_config(**FAULTY)
    replies = []
    with ray_grid(config, 1) as grid:
        pull = grid.pull_messages
        keep = lambda ids: [(replies.append(reply), reply)[1] for reply in pull(ids)]  # noqa: E731
        monkeypatch.setattr(grid, "pull_messages", keep)
        flag.write_text("raise")
        result = run(grid, config)
    failed = [metrics for metrics in result.history if metrics.rejected]
    assert len(failed) == 1
    path = faulty_task.__file__
    lines = Path(path).read_text().splitlines()
    line = 1 + next(n for n, text in enumerate(lines) if "disk is broken" in text)
    file = path if len(path) <= MAX_FILE else f"...{path[3 - MAX_FILE :]}"
    assert list(failed[0].rejected.values()) == [
        f"ValueError: this client's disk is broken ({file}, line {line})"
    ]
    (error,) = [reply.error.reason for reply in replies if reply.has_error()]
    assert error.startswith("Traceback (most recent call last):\n")
    assert "in prepare_or_fail" in error
    assert "\nValueError: this client's disk is broken\n" in error
    assert "ClientFailedError: ValueError: this client's disk is broken" in caplog.text
    assert result.history[-1].accuracy > result.history[0].accuracy


def test_worker_that_raises_in_evaluation_ends_the_run_with_one_line(
    make_config, flag, tmp_path, caplog
):
    config = make_config(**FAULTY)
    with ray_grid(config, 2) as grid:
        grid.worker_process_ids()
        flag.write_text("raise")
        with pytest.raises(RunError) as raised:
            run(grid, config, grid.evaluation)
    reason = r"worker \d cannot evaluate: ValueError: this client's disk is broken"
    assert re.fullmatch(reason, str(raised.value))
    (record,) = [entry for entry in caplog.records if entry.name == "fedavg_app.ray_engine"]
    assert record.levelno == logging.ERROR
    assert re.match(r"worker \d raised:\nTraceback \(most recent call last\):\n", record.message)
    assert "in prepare_or_fail" in record.message
    (summary,) = tmp_path.glob("*/summary.json")
    assert json.loads(summary.read_text())["status"] == "failed"


@pytest.mark.parametrize(
    "how", ["sys.exit", "KeyboardInterrupt", pytest.param("GeneratorExit", marks=pytest.mark.long)]
)
def test_exiting_client_loses_only_its_reply_and_its_worker_continues(make_config, flag, how):
    config = make_config(**FAULTY, strategy="stc")
    with ray_grid(config, 2) as grid:
        pids = grid.worker_process_ids()
        flag.write_text(how)
        result = run(grid, config)
        assert grid.worker_process_ids() == pids
    (reason,) = [reason for metrics in result.history for reason in metrics.rejected.values()]
    assert reason.startswith("SystemExit: this client gives up" if how == "sys.exit" else how)
    assert re.search(r"faulty_task\.py, line \d+\)$", reason)
    assert len(result.history) == 6


@pytest.mark.parametrize("momentum", [0.9, 0.0])
def test_killed_worker_loses_only_its_replies_and_the_states_that_the_history_names(
    make_config, flag, caplog, momentum
):
    """No strategy notices that a client's momentum is gone."""
    config = make_config(**FAULTY, momentum=momentum, **{"fraction-train": 1.0})

    class Kill(Callback):
        def on_round_end(self, metrics, model):
            if metrics.round == 2:
                had.extend(grid.client_states())
                flag.write_text("kill")

    had = []
    with ray_grid(config, 2) as grid:
        before = grid.worker_process_ids()
        result = server_app.run(grid, prepare(config), callbacks=[lambda _: Kill()])
        assert len(set(before) - set(grid.worker_process_ids())) == 1
    (failed,) = [metrics for metrics in result.history if metrics.rejected]
    (reason,) = set(failed.rejected.values())
    clients = re.fullmatch(
        r"worker \d died: its process crashed or was killed \(it had client ([\d, ]+)\)", reason
    )
    assert len(clients[1].split(", ")) == len(failed.rejected) < 20
    assert result.history[-1].accuracy > result.history[0].accuracy
    lost = [client for metrics in result.history for client in metrics.lost_states]
    assert bool(lost) == bool(momentum)
    assert set(lost) < set(had) or not had
    assert lost == result.history[3].lost_states
    (line,) = [text for text in caplog.messages if "it is replaced" in text]
    names = f"; clients {', '.join(map(str, lost))} have lost their states"
    assert line.endswith(f"; it is replaced{names if lost else ''}")


def test_worker_that_dies_in_evaluation_changes_no_result(make_config, flag):
    config = make_config(**FAULTY)
    with ray_grid(config, 2) as grid:
        before = grid.worker_process_ids()
        flag.write_text("kill")
        result = run(grid, config, grid.evaluation)
        assert len(set(before) - set(grid.worker_process_ids())) == 1
    assert not any(metrics.rejected for metrics in result.history)
    expected = run_here(config)
    assert [m.test_loss for m in result.history] == [m.test_loss for m in expected.history]
    assert same_model(result, expected)


def test_workers_that_always_die_in_evaluation_end_the_run(make_config, flag):
    """As happens if a batch of the test needs more memory than there is."""

    def set_flag():
        while not ended.wait(0.05):
            flag.write_text("kill")

    config, ended = make_config(**FAULTY), threading.Event()
    thread = threading.Thread(target=set_flag)
    with ray_grid(config, 1) as grid:
        grid.worker_process_ids()
        thread.start()
        try:
            with pytest.raises(RunError, match="no worker can evaluate: its process crashed or"):
                run(grid, config, grid.evaluation)
        finally:
            ended.set()
            thread.join()
            flag.unlink(missing_ok=True)


def test_start_of_workers_counts_in_no_rounds_time(make_config):
    """The round's time is shorter than what a worker takes to start."""
    config = make_config(**{"round-timeout": 1, "local-steps": 1, "num-server-rounds": 3})
    prepared = prepare(config)
    with ray_grid(config, 2, client_config=prepared.told()) as grid:
        before = grid.worker_process_ids()
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        assert all_ended(before)
        result = server_app.run(grid, prepared)
        assert not set(before) & set(grid.worker_process_ids())
    assert not any(metrics.rejected for metrics in result.history)
    assert result.history[-1].round == 3


def test_worker_that_cannot_load_the_data_ends_the_run_before_round_1(make_config):
    told = prepare(config := make_config()).told()
    told["data-dir"] = "/none"
    why = "no worker can start: .*DataError: data-dir = '/none' is not a directory"
    with ray_grid(config, 1, client_config=told) as grid, pytest.raises(RunError, match=why):
        run(grid, config)
    assert not list(Path(config.run_dir).iterdir())


def test_client_that_sleeps_past_the_deadline_is_interrupted_and_others_are_not_begun(
    make_config, flag
):
    config = make_config(**FAULTY, **{"round-timeout": 8})
    with ray_grid(config, 1) as grid:
        pids = grid.worker_process_ids()
        run(grid, config.model_copy(update={"num_server_rounds": 1}))  # the worker loads the data
        flag.write_text("sleep")
        result = run(grid, config)
        assert grid.worker_process_ids() == pids
    (failed,) = [metrics for metrics in result.history if metrics.rejected]
    reasons = sorted(failed.rejected.values())
    assert reasons[-1] == "still training at the round's deadline"
    assert set(reasons[:-1]) <= {"not started before the round's deadline"}
    assert failed.seconds < 60  # the client sleeps for 600


def test_worker_that_hangs_in_c_code_is_replaced_after_the_deadline(make_config, flag):
    config = make_config(**FAULTY, **{"round-timeout": 8})
    with ray_grid(config, 2) as grid:
        pids = grid.worker_process_ids()
        run(grid, config.model_copy(update={"num_server_rounds": 1}))
        flag.write_text("compute")
        result = run(grid, config)
        end = time.monotonic() + 60
        while grid.worker_process_ids() == pids and time.monotonic() < end:
            grid.pull_messages([])
            grid.wait(0.1)
        (lost,) = set(pids) - set(grid.worker_process_ids())
        assert all_ended([lost])
    failed = [metrics for metrics in result.history if metrics.rejected]
    reasons = [reason for metrics in failed for reason in metrics.rejected.values()]
    assert "no reply in time" in reasons
    assert result.history[-1].round == 5
    assert result.history[-1].accuracy > result.history[0].accuracy
