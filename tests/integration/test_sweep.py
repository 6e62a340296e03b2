"""Sweeps whose runs are processes, some of them real runs."""

import json
import signal
import subprocess
import sys
from importlib.metadata import version

import pytest

from fedavg_app.cli.main import run_command_line
from paper.__main__ import app
from paper.records import read_all
from paper.sweep import sweep
from tests.support.documents import ROOT
from tests.support.fake_runs import experiment
from tests.support.processes import AS_IN_A_TERMINAL, Processes, succeed, until
from tests.support.run_folders import read_history


def test_signal_while_runs_start_leaves_none_of_them(tmp_path, capsys):
    started = []

    def launch(config, folder, resumable):
        program = [sys.executable, "-c", "import time; time.sleep(600)"]
        started.append(subprocess.Popen(program, start_new_session=True))
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
    lines = [
        "made-up: interrupted; ending the runs in progress: 2",
        "made-up: 0 of 8 runs are done; the same command continues with the others, 0 of "
        "them from a checkpoint",
    ]
    assert capsys.readouterr().out.splitlines()[1:] == lines


REAL_RUNS = """
title = "Real runs"
source = "here"
measure = "best-accuracy"
run = { task = "mnist-logistic", data-source = "embedded", num-server-rounds = 2, num-clients = 10 }
columns = [{ name = "IID" }]
rows = [{ name = "a" }, { name = "b", central = true, run = { num-server-rounds = 5 } }]
"""


@pytest.mark.slow
def test_command_records_real_runs_and_repeats_none(monkeypatch, capsys, tmp_path):
    def main(*arguments):
        monkeypatch.setattr(sys, "argv", ["paper", *arguments])
        return run_command_line(app)

    (tmp_path / "tiny.toml").write_text(REAL_RUNS)
    command = ["sweep", str(tmp_path / "tiny.toml"), "--results", str(tmp_path), "--jobs", "2"]
    assert main(*command) == 0, capsys.readouterr()
    found = read_all(tmp_path / "records" / "tiny")
    assert {record.command.split()[2] for record in found} == {"run", "central"}
    (federated,) = (record for record in found if "strategy" in record.config)
    assert federated.history.round == [0, 1, 2]
    assert 0.2 < federated.summary["best-accuracy"] < 1
    assert json.loads(json.dumps(federated.versions))["flwr"] == version("flwr")
    assert main(*command) == 0
    assert "tiny: 2 of 2 runs are done" in capsys.readouterr().out


INTERRUPTED = """
task = "mnist-logistic"
data-source = "embedded"
num-clients = 10
local-steps = 1
target = "none"
evaluate-every = 100
checkpoint-every = 5
num-server-rounds = [3, 650]
"""


def under_way(folder):
    """Return whether a run is beyond its checkpoint of round 5, which follows the round's line."""
    checkpoints = folder.glob("*/*/checkpoint")
    return any(
        "650" in (path.parent / "config.json").read_text() and len(read_history(path.parent)) > 6
        for path in checkpoints
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGINT, marks=pytest.mark.long), signal.SIGTERM]
)
def test_interrupted_sweep_says_what_is_done_and_resumes_from_the_checkpoint(tmp_path, number):
    (tmp_path / "long.toml").write_text(INTERRUPTED)
    command = [sys.executable, str(ROOT / "simulation.py"), "sweep", "long.toml"]
    folder = tmp_path / "sweeps/long"
    with Processes() as processes:
        process = subprocess.Popen(
            [*AS_IN_A_TERMINAL, *command], cwd=tmp_path, env=processes.environment,
            start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert until(lambda: under_way(folder), 300)
        process.send_signal(number)
        printed = process.communicate(timeout=100)[0].splitlines()
        assert process.returncode == 128 + number
        assert processes.gone()
    assert printed[-2:] == [
        "long: interrupted; ending the runs in progress: 1",
        "long: 1 of 2 runs are done; the same command continues with the others, 1 of "
        "them from a checkpoint",
    ]
    (checkpoint,) = folder.glob("*/*/checkpoint")
    before = read_history(checkpoint.parent)
    assert len(before) < 651
    done = succeed(command, cwd=tmp_path).stdout
    assert "long: 1 of 2 runs are done" in done
    assert "2/2  num-server-rounds 650: finished after round 650, accuracy 0." in done
    after = read_history(checkpoint.parent)
    assert [line["round"] for line in after] == list(range(651))
    assert after[:5] == before[:5], "with the seconds: these rounds were not run again"
    assert not list(folder.glob("*/*/checkpoint"))
