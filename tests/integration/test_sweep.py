"""Sweeps whose runs are processes, some of them real runs."""

import json
import re
import signal
import subprocess
import sys
from importlib.metadata import version

import pytest

from fedavg_app.cli.main import run_command_line
from paper.__main__ import app
from paper.records import Record, by_run, read_all
from paper.sweep import sweep
from tests.support.documents import ROOT
from tests.support.fake_runs import FakeRuns, experiment
from tests.support.processes import Processes, succeed, until


@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM, signal.SIGKILL]
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
    assert len(by_run(read_all(folder))) == 8


class Interrupting(subprocess.Popen):
    """A process at whose end another signal arrives."""

    def terminate(self):
        super().terminate()
        signal.raise_signal(signal.SIGTERM)


def test_signals_while_runs_start_and_end_leave_none_of_them(tmp_path):
    started = []

    def launch(config, folder, resumable):
        program = [sys.executable, "-c", "import time; time.sleep(600)"]
        started.append(Interrupting(program, start_new_session=True))
        if len(started) == 2:
            signal.raise_signal(signal.SIGTERM)
        return started[-1]

    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        with pytest.raises(SystemExit):
            sweep(experiment(), tmp_path / "results", launch, jobs=2)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert len(started) == 2
    assert all(process.poll() in (-signal.SIGTERM, -signal.SIGKILL) for process in started)


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
    assert main(*command) == 0
    assert "tiny: 2 of 2 runs are done" in capsys.readouterr().out


GRID = """
task = "mnist-logistic"
data-source = "embedded"
num-clients = 10
num-server-rounds = 3
local-steps = 1
target-accuracy = 0
seed = [1, 2]

[[variants]]
strategy = "fedavg"

[[variants]]
strategy = "stc"
"""


@pytest.mark.slow
def test_grid_is_run_once_and_compared(tmp_path):
    (tmp_path / "methods.toml").write_text(GRID)
    command = [sys.executable, str(ROOT / "simulation.py"), "sweep", "methods.toml"]

    def sweep_grid():
        return succeed([*command, "--plot", "methods.png"], cwd=tmp_path).stdout

    first = sweep_grid()
    assert "methods: 0 of 4 runs are done" in first
    assert "4/4  seed 2, stc" in first
    assert re.search("fedavg +│ +3 │", first)
    assert (tmp_path / "methods.png").stat().st_size
    folders = sorted((tmp_path / "sweeps/methods").glob("*/*/summary.json"))
    assert len(folders) == 4
    assert "methods: 4 of 4 runs are done" in sweep_grid()
    assert sorted((tmp_path / "sweeps/methods").glob("*/*/summary.json")) == folders
