import json
import shlex
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest

import simulation
from fedavg_app.config import CentralConfig, RunConfig
from fedavg_app.errors import ConfigError, RunError
from fedavg_app.parts import load_task
from fedavg_app.reproduction.experiments import in_order
from fedavg_app.reproduction.jobs import Job
from fedavg_app.reproduction.records import (
    Record,
    Stored,
    by_run,
    command_line,
    find,
    identity,
    read_all,
    read_run,
)
from fedavg_app.reproduction.records import write as write_record
from fedavg_app.reproduction.sweep import adopt, sweep
from fedavg_app.reproduction.tables import fill
from tests.docs.reading import ROOT
from tests.engine.processes import Processes, until
from tests.reproduction.fake_runs import (
    FINGERPRINT,
    HISTORY,
    FakeRuns,
    experiment,
    files,
    line,
    write,
)

CONFIGS = [run.config for _, run in in_order(experiment().cells())]


def records(results):
    return by_run(read_all(results / "records" / "made-up"))


def test_every_run_is_done_once_and_in_order(tmp_path, capsys):
    runs = FakeRuns()
    sweep(experiment(), tmp_path, runs, jobs=1)
    assert runs.started == CONFIGS
    assert set(records(tmp_path)) == {identity(config) for config in CONFIGS}
    shown = capsys.readouterr().out
    assert "made-up: 0 of 8 runs are done" in shown
    assert "1/8  E = 1 | IID, seed 1: best accuracy 0.9500, 0 s  left 0:00:0" in shown
    again = FakeRuns()
    sweep(experiment(), tmp_path, again, jobs=1)
    assert again.started == []


def test_only_what_the_record_is_of_decides_whether_a_run_is_missing(tmp_path):
    sweep(experiment(), tmp_path, FakeRuns(), jobs=8)
    table = experiment()
    table.rows[0].run["seed"] = 1  # other file names, fewer runs: nothing new
    table.rows[1].run["learning-rate"] = 0.2
    again = FakeRuns()
    sweep(table, tmp_path, again, jobs=8)
    assert [config.learning_rate for config in again.started] == [0.2] * 4


def test_a_run_at_a_default_that_has_changed_since_is_another_run(tmp_path):
    rate = load_task(CONFIGS[0]).learning_rate
    given = CONFIGS[0].model_copy(update={"learning_rate": rate})
    assert identity(CONFIGS[0]) == identity(given)
    assert identity(CONFIGS[0].model_copy(update={"device": "cuda"})) == identity(given)
    then = read_run(write(tmp_path / "run", CONFIGS[0], [line(1, 0.9)], **{"learning-rate": 7.0}))
    assert then.identity == identity(given.model_copy(update={"learning_rate": 7.0}))


def test_a_run_that_stopped_at_its_target_is_that_of_a_config_with_more_rounds(tmp_path):
    given = CONFIGS[0].model_copy(update={"num_server_rounds": 50})
    for reached in (None, 17.5):
        lines = [line(0, 0.1), line(18, 0.95)]
        folder = tmp_path / f"run-{reached}"
        record = read_run(write(folder, given, lines, **{"rounds-to-target": reached}))
        known = {record.identity: Stored(folder, record, record.identity)}
        found = {
            rounds: find(known, given.model_copy(update={"num_server_rounds": rounds})) is not None
            for rounds in (17, 18, 50, 400)
        }
        assert found == {17: False, 18: bool(reached), 50: True, 400: bool(reached)}
        other = given.model_copy(update={"num_server_rounds": 400, "seed": 9})
        assert find(known, other) is None


def test_a_sweep_and_a_table_take_such_a_run(tmp_path):
    given = CONFIGS[0].model_copy(update={"num_server_rounds": 50})
    lines = [line(0, 0.1), line(18, 0.95)]
    record = read_run(write(tmp_path / "run", given, lines, **{"rounds-to-target": 17.5}))
    assert adopt(experiment(), tmp_path / "adopted", tmp_path / "run") == 1
    assert set(records(tmp_path / "adopted")) == {identity(given)}
    folder = tmp_path / "records" / "another"
    folder.mkdir(parents=True)
    write_record(record, folder / "shorter.json")
    runs = FakeRuns()
    sweep(experiment(), tmp_path, runs, jobs=1)
    assert runs.started == CONFIGS[1:]
    (filled, _), *_ = fill(experiment(), by_run(read_all(tmp_path / "records")))
    assert folder / "shorter.json" in [done.path for done in filled.done]


def test_a_record_holds_config_command_versions_and_a_condensed_history(tmp_path):
    lines = [
        line(0, 0.1, train_loss=None), line(1, None, rejected={"5": "NaN"}),
        line(2, 0.95, train_loss=0.0123456, rejected={"5": "NaN", "7": "late"}),
        line(3, 0.9, rejected={"8": "late"}),
    ]  # fmt: skip
    config = CONFIGS[0].model_copy(update={"data_dir": "/some/where"})
    record = read_run(write(tmp_path / "run", config, lines))
    assert record.history.model_dump() == {
        "round": [0, 2, 3], "accuracy": [0.1, 0.95, 0.9], "train_loss": [None, 0.01235, 0.25],
        "test_loss": [0.1235, 0.1235, 0.1235], "bytes_up": [0, 20_000_000, 30_000_000],
        "bytes_down": [0, 40_000_000, 60_000_000], "rejected": [0, 3, 1],
    }  # fmt: skip
    assert record.data == "MNIST in data-dir"
    assert record.command == (
        "python simulation.py run --task mnist-logistic --target-accuracy 0.9 --seed 1"
    )
    assert record.versions == {"flwr": "1.41.0"}
    assert record.identity == identity(CONFIGS[0])
    assert "/some" not in record.model_dump_json()


def test_a_record_of_a_thousand_rounds_is_small(tmp_path):
    lines = [line(number, number / 7000, train_loss=1 / (number + 7)) for number in range(1001)]
    path = tmp_path / "records" / "record.json"
    path.parent.mkdir()
    write_record(read_run(write(tmp_path / "run", CONFIGS[0], lines)), path)
    assert path.stat().st_size < 60_000
    (stored,) = read_all(path.parent)
    assert stored.record.history.round == list(range(1001))


@pytest.mark.parametrize(
    "config",
    [
        RunConfig(strategy="stc", strategy_args="sparsity-up = 0.04, scope = 'model'", seed=7),
        RunConfig(partition="classes", partition_args="classes-per-client = 2", batch_size=0),
        RunConfig(strategy_args='name = "x"', learning_rate=0.0464, momentum=0.9),
        CentralConfig(task="cifar10-cnn", num_threads=2, learning_rate=0.1),
    ],
)
def test_the_command_of_a_record_is_the_run_again(monkeypatch, config):
    told = []
    monkeypatch.setattr(simulation, "simulate", lambda config, *_: told.append(config))
    monkeypatch.setattr("fedavg_app.central.train", lambda config, *_: told.append(config))
    monkeypatch.setattr(sys, "argv", shlex.split(command_line(config))[1:])
    assert simulation.main() == 0
    values = {name: getattr(told[0], name) for name in type(config).model_fields}
    assert type(config)(**values) == config


def test_what_diverged_is_finished_and_what_failed_is_not(tmp_path, capsys):
    reasons = {
        1: "no usable reply in 3 rounds in a row: array 'b' has NaN or infinite values",
        2: "no usable reply in 3 rounds in a row: error 1: no such file",
    }

    def leaves(config):
        if config.local_epochs == 1:
            return files(config, HISTORY), 0
        return files(config, HISTORY, status="failed", reason=reasons[config.seed]), 1

    with pytest.raises(RunError, match="2 of the runs failed; the lines above say why"):
        sweep(experiment(), tmp_path, FakeRuns(leaves=leaves), jobs=3)
    statuses = [stored.record.status for stored in records(tmp_path).values()]
    assert sorted(statuses) == ["diverged"] * 2 + ["finished"] * 4
    assert capsys.readouterr().out.count("failed: error: the last line") == 2
    again = FakeRuns()
    sweep(experiment(), tmp_path, again, jobs=3)
    assert [(config.local_epochs, config.seed) for config in again.started] == [(5, 2)] * 2


def test_a_run_that_leaves_nothing_failed(tmp_path):
    with pytest.raises(RunError, match="8 of the runs failed"):
        sweep(experiment(), tmp_path, FakeRuns(leaves=lambda config: (None, 1)), jobs=8)
    assert not records(tmp_path)


def test_when_the_time_is_over_runs_are_ended_and_not_recorded(tmp_path, capsys):
    started = time.monotonic()
    runs = FakeRuns(seconds=lambda seed: 60)
    sweep(experiment(), tmp_path, runs, jobs=2, budget_seconds=1)
    assert 1 <= time.monotonic() - started < 20
    assert len(runs.started) == 2
    assert not records(tmp_path)
    assert "the time is over: 8 not run" in capsys.readouterr().out
    none = FakeRuns()
    sweep(experiment(), tmp_path, none, jobs=2, budget_seconds=0)
    assert none.started == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_killed_sweep_leaves_whole_records_and_goes_on_from_there(tmp_path, number):
    folder = tmp_path / "results" / "records" / "made-up"
    command = [sys.executable, "-m", "tests.reproduction.fake_runs", str(tmp_path / "results")]
    with Processes() as processes:
        process = subprocess.Popen(
            command, cwd=ROOT, env=processes.environment, start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        assert until(lambda: len(list(folder.glob("*.json"))) == 4, 60)
        assert until(lambda: len(processes.living("-I -S")) == 2, 10)
        process.send_signal(number)
        assert process.wait(20) != 0
        # SIGKILL leaves no chance to end the runs in progress.
        assert number == signal.SIGKILL or not processes.living()
    done = [Record.model_validate_json(path.read_text()) for path in folder.iterdir()]
    assert [record.config["seed"] for record in done] == [1] * 4
    runs = FakeRuns()
    sweep(experiment(), tmp_path / "results", runs, jobs=2)
    assert [config.seed for config in runs.started] == [2] * 4
    assert len(records(tmp_path / "results")) == 8


def test_runs_done_by_hand_are_taken_in(tmp_path):
    write(tmp_path / "runs" / "a", CONFIGS[3], HISTORY)
    write(tmp_path / "runs" / "deep" / "b", CONFIGS[4], HISTORY)
    write(tmp_path / "runs" / "other", RunConfig(seed=99), HISTORY)
    write(tmp_path / "runs" / "ended", CONFIGS[5], HISTORY, status="failed", reason="interrupted")
    assert adopt(experiment(), tmp_path, tmp_path / "runs") == 2
    assert adopt(experiment(), tmp_path, tmp_path / "runs") == 0
    assert set(records(tmp_path)) == {identity(CONFIGS[3]), identity(CONFIGS[4])}
    with pytest.raises(ConfigError, match=r"adopt = '.*none': is not a directory"):
        adopt(experiment(), tmp_path, tmp_path / "none")


def test_runs_on_other_data_are_not_taken(tmp_path, capsys):
    other = experiment(data="0" * 64)
    with pytest.raises(RunError, match="8 of the runs failed"):
        sweep(other, tmp_path, FakeRuns(), jobs=2)
    assert "it ran on other data (MNIST in /some/where); give --data-dir" in capsys.readouterr().out
    write(tmp_path / "runs" / "a", CONFIGS[3], HISTORY)
    assert adopt(other, tmp_path, tmp_path / "runs") == 0
    assert not records(tmp_path)
    sweep(experiment(data=FINGERPRINT), tmp_path, FakeRuns(), jobs=2)
    assert len(records(tmp_path)) == 8


def test_a_run_that_another_table_has_on_the_same_data_is_not_done_again(tmp_path):
    sweep(experiment(name="first"), tmp_path, FakeRuns(), jobs=8)
    for data, missing in ((FINGERPRINT, 4), ("0" * 64, 12)):
        more = experiment(name="second", data=data)
        more.rows[0].run["local-epochs"] = [1, 3]
        runs = FakeRuns()
        with suppress(RunError):  # those on other data
            sweep(more, tmp_path, runs, jobs=8)
        assert len(runs.started) == missing


def test_a_damaged_record_is_named_with_what_to_do(tmp_path):
    folder = tmp_path / "records" / "made-up"
    folder.mkdir(parents=True)
    (folder / "half.json").write_text('{"status": "finished", ')
    with pytest.raises(ConfigError, match=r"half.json': is not the record of a run .*delete it"):
        sweep(experiment(), tmp_path, FakeRuns(), jobs=1)


def main(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["simulation.py", *arguments])
    return simulation.main()


TINY = """
title = "Tiny"
source = "here"
measure = "best-accuracy"
run = { task = "mnist-logistic", data-source = "embedded", num-server-rounds = 2, num-clients = 10 }
columns = [{ name = "IID" }]
rows = [{ name = "a" }, { name = "b", central = true, run = { num-server-rounds = 5 } }]
"""


@pytest.mark.slow
def test_the_command_runs_real_runs_and_then_none(monkeypatch, capsys, tmp_path):
    (tmp_path / "tiny.toml").write_text(TINY)
    command = ["sweep", str(tmp_path / "tiny.toml"), "--results", str(tmp_path), "--jobs", "2"]
    assert main(monkeypatch, *command) == 0, capsys.readouterr()
    found = [stored.record for stored in read_all(tmp_path / "records" / "tiny")]
    assert {record.command.split()[2] for record in found} == {"run", "central"}
    (federated,) = (record for record in found if "strategy" in record.config)
    assert federated.history.round == [0, 1, 2]
    assert 0.2 < federated.summary["best-accuracy"] < 1
    assert json.loads(json.dumps(federated.versions))["flwr"].startswith("1.41")
    assert main(monkeypatch, *command, "--budget-minutes", "0") == 0
    assert "tiny: 2 of 2 runs are done" in capsys.readouterr().out


LONG = """
title = "Long"
source = "here"
measure = "best-accuracy"
run = { task = "mnist-logistic", data-source = "embedded", num-clients = 10, local-steps = 1 }
columns = [{ name = "IID", run = { num-server-rounds = 1500, evaluate-every = 50 } }]
rows = [{ name = "STC", run = { strategy = "stc" } }]
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGTERM, marks=pytest.mark.long), signal.SIGKILL]
)
def test_an_interrupted_run_goes_on_from_its_checkpoint_to_the_same_record(tmp_path, number):
    (tmp_path / "long.toml").write_text(LONG)
    command = [sys.executable, "simulation.py", "sweep", str(tmp_path / "long.toml"), "--jobs=1"]

    def rounds(results):
        lines = [path.read_text().count("\n") for path in results.rglob("history.jsonl")]
        return max(lines, default=0)

    with Processes() as processes:

        def start(results):
            return subprocess.Popen(
                [*command, "--results", str(results)], cwd=ROOT, env=processes.environment,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )  # fmt: skip

        first = start(tmp_path / "cut")
        assert until((tmp_path / "cut" / "unfinished" / "long" / "lock").exists, 60)
        refused = start(tmp_path / "cut")
        assert "a sweep of it is going on" in refused.communicate(timeout=60)[0]
        assert refused.returncode == 1
        assert until(lambda: rounds(tmp_path / "cut") > 100, 120), first.communicate()[0]
        first.send_signal(number)
        first.communicate(timeout=60)
        if number == signal.SIGKILL:  # which leaves the run going, and holding its folder
            assert until(lambda: processes.living("simulation.py run"), 10)
            refused = start(tmp_path / "cut")
            assert "runs of one that was killed" in refused.communicate(timeout=60)[0]
            processes.kill()
        before = rounds(tmp_path / "cut")
        assert 100 < before < 1500
        for results in (tmp_path / "cut", tmp_path / "whole"):
            run = start(results)
            assert run.wait(200) == 0, run.communicate()[0]
    whole, cut = (read_all(tmp_path / name / "records")[0].record for name in ("whole", "cut"))
    assert cut.history == whole.history
    assert (cut.config, cut.command) == (whole.config, whole.command)
    assert not list((tmp_path / "cut" / "unfinished").rglob("history.jsonl"))


def test_a_run_of_another_config_is_not_gone_on_with(tmp_path):
    ((cell, run), *_) = in_order(experiment().cells())
    begun = tmp_path / run.slug / "begun"
    asked = []

    def launch(config, folder, begun):
        asked.append(begun)
        return subprocess.Popen([sys.executable, "-c", "pass"])

    for changes in ({}, {"batch_size": 99}):
        write(begun, run.config.model_copy(update=changes), HISTORY)
        (begun / "checkpoint").mkdir()
        (begun / "checkpoint" / "manifest.json").write_text("{}")
        Job(cell, run, launch, tmp_path).process.wait()
        shutil.rmtree(tmp_path / run.slug)
    assert asked == [begun, None]


@pytest.mark.parametrize(
    ("arguments", "status", "fragment"),
    [
        (["none.toml"], 1, "error: experiment = 'none.toml': cannot be read (No such file"),
        (["experiments/stc-bits.toml", "--jobs=-1"], 2, "error: jobs = '-1': should be greater"),
        (["experiments/stc-bits.toml", "--adopt=/none"], 1, "error: adopt = '/none': is not a"),
        (["experiments/stc-bits.toml", "--results=/dev/null"], 1, "error: results = '/dev/null'"),
        (["experiments/stc-bits.toml", "--data-dir=/none"], 1, "error: data-dir = '/none': is not"),
        (["README.md"], 1, "error: experiment = 'README.md': is not TOML"),
    ],
)
def test_bad_input_is_one_line_and_a_nonzero_exit(monkeypatch, capsys, arguments, status, fragment):
    monkeypatch.chdir(ROOT)
    assert main(monkeypatch, "sweep", *arguments) == status
    error = capsys.readouterr().err
    assert fragment in error
    assert len(error.strip().splitlines()) == 1
