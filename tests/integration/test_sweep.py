"""Sweeps whose runs are processes, some of them real runs."""

import json
import signal
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import pytest
import ray

from fedavg_app.cli.main import run_command_line
from fedavg_app.config import RunConfig
from paper.__main__ import app
from paper.records import Record, by_run, read_all
from paper.run_process import launcher
from paper.shared_ray import shared_ray
from paper.sweep import sweep
from tests.support import blocking_mod
from tests.support.blocking_mod import HELD_ROUND, rounds_seen
from tests.support.fake_runs import FakeRunProcesses, FakeRuns, experiment
from tests.support.processes import Processes, until

ROOT = Path(__file__).parents[2]


def records(results):
    return by_run(read_all(results / "records" / "made-up"))


def test_runs_in_progress_at_the_end_of_the_budget_are_ended_and_not_recorded(tmp_path, capsys):
    started = time.monotonic()
    runs = FakeRunProcesses(seconds=lambda seed: 3600)
    sweep(experiment(), tmp_path, runs, jobs=2, budget_seconds=1)
    assert 1 <= time.monotonic() - started < 300
    assert len(runs.started) == 2
    assert not records(tmp_path)
    assert "the time is over: 8 not run" in capsys.readouterr().out


@pytest.mark.parametrize(
    "number",
    [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM, signal.SIGKILL],
)
def test_killed_sweep_leaves_complete_records_and_the_next_does_the_rest(tmp_path, number):
    folder = tmp_path / "results" / "records" / "made-up"
    command = [sys.executable, "-m", "tests.support.fake_runs", str(tmp_path / "results")]
    with Processes() as processes:
        process = subprocess.Popen(
            command, cwd=ROOT, env=processes.environment, start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        # The four runs of seed 1 end at once, those of seed 2 take an hour.
        assert until(lambda: len(list(folder.glob("*.json"))) == 4, 200)
        assert until(lambda: len(processes.living("-I -S")) == 2, 60)
        process.send_signal(number)
        assert process.wait(100) != 0
        # SIGKILL leaves no chance to end the runs in progress.
        assert number == signal.SIGKILL or not processes.living()
    recorded = [Record.model_validate_json(path.read_text()) for path in folder.iterdir()]
    assert [record.config["seed"] for record in recorded] == [1] * 4
    runs = FakeRuns()
    sweep(experiment(), tmp_path / "results", runs, jobs=2)
    assert [config.seed for config in runs.started] == [2] * 4
    assert len(records(tmp_path / "results")) == 8


REAL_RUNS = """
title = "Real runs"
source = "here"
measure = "best-accuracy"
run = { task = "mnist-logistic", data-source = "embedded", num-server-rounds = 2, num-clients = 10 }
columns = [{ name = "IID" }]
rows = [{ name = "a" }, { name = "b", central = true, run = { num-server-rounds = 5 } }]
"""


@pytest.mark.slow
def test_command_records_real_runs_and_does_none_again(monkeypatch, capsys, tmp_path):
    def main(*arguments):
        monkeypatch.setattr(sys, "argv", ["paper", *arguments])
        return run_command_line(app)

    (tmp_path / "tiny.toml").write_text(REAL_RUNS)
    command = ["sweep", str(tmp_path / "tiny.toml"), "--results", str(tmp_path), "--jobs", "2"]
    assert main(*command) == 0, capsys.readouterr()
    found = [stored.record for stored in read_all(tmp_path / "records" / "tiny")]
    assert {record.command.split()[2] for record in found} == {"run", "central"}
    (federated,) = (record for record in found if "strategy" in record.config)
    assert federated.history.round == [0, 1, 2]
    assert 0.2 < federated.summary["best-accuracy"] < 1
    assert json.loads(json.dumps(federated.versions))["flwr"] == version("flwr")
    assert main(*command, "--budget-minutes", "0") == 0
    assert "tiny: 2 of 2 runs are done" in capsys.readouterr().out


@pytest.mark.slow
def test_ray_is_started_once_and_joined_by_the_runs(tmp_path):
    config = RunConfig(
        task="mnist-logistic", data_source="embedded", num_server_rounds=1, num_clients=4,
    )  # fmt: skip
    assert not ray.is_initialized()
    with shared_ray(1) as address:
        assert not ray.is_initialized()  # nothing needs it yet
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            run = launcher("", 1, address)(config, tmp_path / name, None)
            log = tmp_path / name / "log"
            assert run.wait(200) == 0, log.read_text()
            assert f"joining Ray at {address()}" in log.read_text()
    assert not ray.is_initialized()


# One client trains in each round; a checkpoint is saved every third round.
INTERRUPTED = f"""
title = "Interrupted"
source = "here"
measure = "best-accuracy"
run = {{ task = "mnist-logistic", data-source = "embedded", num-clients = 10, local-steps = 1 }}
columns = [{{ name = "IID", run = {{ num-server-rounds = 300, evaluate-every = 50 }} }}]
rows = [{{ name = "STC", run = {{ strategy = "stc", client-mods = "{blocking_mod.MOD}" }} }}]
"""
LAST_CHECKPOINT = (HELD_ROUND - 1) // 3 * 3


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "number",
    [pytest.param(one, marks=pytest.mark.long) for one in (signal.SIGTERM, signal.SIGKILL)],
)
def test_interrupted_run_resumes_from_checkpoint_and_gives_the_same_record(tmp_path, number):
    (tmp_path / "interrupted.toml").write_text(INTERRUPTED)

    def history_length(results):
        lines = [path.read_text().count("\n") for path in results.rglob("history.jsonl")]
        return max(lines, default=0)

    with Processes() as processes:

        def start(results):
            results.mkdir(exist_ok=True)
            environment = {
                **processes.environment, "PYTHONPATH": str(ROOT),
                blocking_mod.FOLDER_VARIABLE: str(results),
            }  # fmt: skip
            return subprocess.Popen(
                [
                    sys.executable, "-m", "paper", "sweep", "--jobs=1",
                    str(tmp_path / "interrupted.toml"), "--results", str(results),
                ],
                cwd=ROOT, env=environment,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )  # fmt: skip

        def refused(results):
            second = start(results)
            output = second.communicate(timeout=200)[0]
            assert second.returncode == 1
            return output

        cut, whole = tmp_path / "cut", tmp_path / "whole"
        first = start(cut)
        held = until(lambda: HELD_ROUND in rounds_seen(cut), 300)
        assert held, "the round has not begun" if first.poll() is None else first.communicate()[0]
        assert "a sweep of it is going on" in refused(cut)
        first.send_signal(number)
        first.communicate(timeout=200)
        if number == signal.SIGKILL:  # the run ends only because its Ray does
            assert until(lambda: not processes.living("simulation.py run"), 120)
        assert history_length(cut) == HELD_ROUND  # rounds 0 to 149
        before = rounds_seen(cut)
        for results in (cut, whole):
            results.mkdir(exist_ok=True)
            (results / "released").touch()
            run = start(results)
            assert run.wait(300) == 0, run.communicate()[0]
    assert rounds_seen(whole) == list(range(1, 301))
    assert before == list(range(1, HELD_ROUND + 1))
    assert rounds_seen(cut)[len(before) :] == list(range(LAST_CHECKPOINT + 1, 301))
    ours, theirs = (read_all(results / "records")[0].record for results in (cut, whole))
    assert ours.history == theirs.history
    assert (ours.config, ours.command) == (theirs.config, theirs.command)
    assert not list((cut / "unfinished").rglob("history.jsonl"))
