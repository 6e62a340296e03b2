"""The command line of simulation.py, in this process."""

import builtins
import runpy
import sys

import pytest

import simulation
from fedavg_app.config import CentralConfig, RunConfig


def command_line(monkeypatch, *arguments):
    """Run the command line; return its exit status."""
    monkeypatch.setattr(sys, "argv", ["simulation.py", *arguments])
    return simulation.run_command_line(simulation.Simulation)


@pytest.mark.parametrize(
    ("command", "config"),
    [("run", RunConfig), ("central", CentralConfig), ("partition", RunConfig)],
)
def test_help_lists_every_key_of_the_config(monkeypatch, capsys, command, config):
    with pytest.raises(SystemExit) as exited:
        command_line(monkeypatch, command, "--help")
    assert exited.value.code == 0
    shown = capsys.readouterr().out
    for name in config.model_fields:
        assert f"--{name.replace('_', '-')} " in shown


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        (
            ["run", "--batch-size=-1"],
            "error: batch-size = '-1': should be greater than or equal to 0",
        ),
        (["run", "--fraction-train", "1.5"], "error: fraction-train = '1.5'"),
        (["run", "--task", "mnits"], "error: task = 'mnits': known tasks:"),
        (["run", "--strategy", "fedavgg"], "error: strategy = 'fedavgg': known strategies:"),
        (["run", "--local-epochs", "0"], "error: local-epochs = 0"),
        (["run", "--num-workers=-2"], "error: num-workers = '-2'"),
        (["run", "--state-memory=0"], "error: state-memory = '0'"),
        (["run", "--clients-per-batch=0"], "error: clients-per-batch = '0'"),
        (
            ["run", "--ray-address=127.0.0.1:1"],
            "error: ray-address = '127.0.0.1:1': cannot be reached",
        ),
        (["resume", "/nowhere"], "error: resume = '/nowhere': give the folder of a federated run"),
        (["central", "--task", "mnits"], "error: task = 'mnits': known tasks:"),
        (["central", "--evaluate-every=0"], "error: evaluate-every = '0'"),
        (["central", "--data-dir=/none"], "error: data-dir = '/none' is not a directory"),
        (["central", "--task=cifar10-cnn", "--data-source=embedded"], "CIFAR-10 has none; give"),
        (["partition", "--partition=random"], "error: partition = 'random': mnist-2nn can be"),
        (
            ["partition", "--num-clients=100000", "--data-source=embedded"],
            "error: num-clients = 100000: more clients",
        ),
        (["partition", "--plot=/nowhere/clients.png"], "error: plot = '/nowhere/clients.png'"),
        (["partition", "--plot=/dev/null/clients.png"], "error: plot = '/dev/null/clients.png'"),
        (["partition", "--partition-args=x"], "error: partition-args = 'x': write TOML"),
    ],
)
def test_bad_input_is_one_line_and_a_nonzero_exit_status(monkeypatch, capsys, arguments, fragment):
    assert command_line(monkeypatch, *arguments) != 0
    error = capsys.readouterr().err
    assert fragment in error
    assert len(error.strip().splitlines()) == 1


def test_unknown_flag_is_refused(monkeypatch, capsys):
    with pytest.raises(SystemExit) as exited:
        command_line(monkeypatch, "run", "--bach-size", "5")
    assert exited.value.code == 2
    assert "--bach-size" in capsys.readouterr().err


def test_interrupted_command_says_so_and_exits_with_130(monkeypatch, capsys):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("fedavg_app.server.central_sgd.train_centrally", interrupt)
    assert command_line(monkeypatch, "central", "--task", "mnist-logistic") == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_missing_simulation_extra_is_one_line(monkeypatch):
    original = builtins.__import__

    def without_extra(name, *arguments, **keywords):
        if name == "pydantic_settings":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return original(name, *arguments, **keywords)

    monkeypatch.setattr(builtins, "__import__", without_extra)
    with pytest.raises(SystemExit) as exited:
        runpy.run_path(simulation.__file__)
    assert exited.value.code == (
        "error: pydantic_settings is missing; run: pip install 'fedavg-app[simulation]'"
    )
