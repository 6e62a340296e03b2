"""`python simulation.py` as a person runs it: a process, its output and its exit status."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import simulation
from fedavg_app.config import RunConfig
from tests import slices

ROOT = Path(__file__).parents[1]


def run(*arguments, cwd=ROOT):
    command = [sys.executable, str(ROOT / "simulation.py"), *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300)


def main(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["simulation.py", *arguments])
    return simulation.main()


@pytest.mark.slow
def test_the_main_command_learns_on_the_embedded_digits(tmp_path):
    done = run(
        "run", "--data-source", "embedded", "--num-server-rounds", "40", "--run-dir", str(tmp_path)
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    (folder,) = tmp_path.iterdir()
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["best-accuracy"] >= 0.85
    assert summary["rejected-replies"] == 0
    assert re.search(r"round +40/40 +accuracy 0\.8", done.stdout)
    assert str(folder) in done.stdout


def test_help_lists_every_key_of_the_run_config(monkeypatch, capsys):
    with pytest.raises(SystemExit) as exited:
        main(monkeypatch, "run", "--help")
    assert exited.value.code == 0
    shown = capsys.readouterr().out
    for name in RunConfig.model_fields:
        assert f"--{name.replace('_', '-')} " in shown


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        (["--batch-size=-1"], "error: batch-size = '-1': should be greater than or equal to 0"),
        (["--fraction-train", "1.5"], "error: fraction-train = '1.5'"),
        (["--task", "mnits"], "error: task = 'mnits': known tasks:"),
        (["--strategy", "fedavgg"], "error: strategy = 'fedavgg': known strategies:"),
        (["--local-epochs", "0"], "error: local-epochs = 0"),
        (["--num-workers=-2"], "error: num-workers = '-2'"),
        (["--state-memory=0"], "error: state-memory = '0'"),
        (["--ray-address=127.0.0.1:1"], "error: ray-address = '127.0.0.1:1': cannot be reached"),
    ],
)
def test_bad_input_is_one_line_and_a_nonzero_exit(monkeypatch, capsys, arguments, fragment):
    assert main(monkeypatch, "run", *arguments) != 0
    error = capsys.readouterr().err
    assert fragment in error
    assert len(error.strip().splitlines()) == 1


def test_an_unknown_flag_is_refused(monkeypatch, capsys):
    with pytest.raises(SystemExit) as exited:
        main(monkeypatch, "run", "--bach-size", "5")
    assert exited.value.code == 2
    assert "--bach-size" in capsys.readouterr().err


@pytest.mark.slow
def test_central_and_partition_take_the_tasks_and_data_of_run(tmp_path):
    folder = slices.write("cifar10-cnn", tmp_path / "cifar")
    done = run(
        "central", "--task", "cifar10-cnn", "--data-dir", str(folder), "--num-server-rounds", "4",
        "--evaluate-every", "2", "--batch-size", "20", "--run-dir", str(tmp_path / "runs"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "central on cifar10-cnn: all data in one place, B = 20" in done.stdout
    assert "round 4/4" in done.stdout
    picture = tmp_path / "who.png"
    done = run(
        "partition", "--task", "cifar10-cnn", "--data-dir", str(folder), "--num-clients", "5",
        "--partition", "classes", "--plot", str(picture),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "5 clients have 100 of 100 training examples" in done.stdout
    assert picture.is_file()


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        (["central", "--task", "mnits"], "error: task = 'mnits': known tasks:"),
        (["central", "--evaluate-every=0"], "error: evaluate-every = '0'"),
        (["central", "--data-dir=/none"], "error: data-dir = '/none' is not a directory"),
        (["central", "--task=cifar10-cnn", "--data-source=embedded"], "CIFAR-10 has none; give"),
        (["partition", "--partition=random"], "error: partition = 'random': mnist-2nn can be"),
        (["partition", "--num-clients=100000"], "error: num-clients = 100000: more clients"),
        (["partition", "--plot=/nowhere/who.png"], "error: plot = '/nowhere/who.png'"),
        (
            ["partition", "--plot=/dev/null/who.png"],
            "error: plot = '/dev/null/who.png'",
        ),
        (["partition", "--partition-args=x"], "error: partition-args = 'x': write TOML"),
    ],
)
def test_bad_input_for_central_and_partition(monkeypatch, capsys, tmp_path, arguments, fragment):
    assert main(monkeypatch, *arguments) != 0
    error = capsys.readouterr().err
    assert fragment in error
    assert len(error.strip().splitlines()) == 1
