"""The command line within this process; tests/e2e has it as a process."""

import sys

import pytest

from fedavg_app.cli.main import run_command_line
from paper.__main__ import app
from tests.support.documents import ROOT

TABLE = "paper/experiments/stc-bits.toml"


def main(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["paper", *arguments])
    return run_command_line(app)


@pytest.mark.parametrize(
    ("arguments", "status", "fragment"),
    [
        (
            ["none.toml"],
            2,
            "error: Invalid value for 'EXPERIMENT': File 'none.toml' does not exist",
        ),
        ([TABLE, "--jobs=-1"], 2, "error: Invalid value for '--jobs': -1"),
        ([TABLE, "--results=README.md"], 2, "error: Invalid value for '--results': Directory"),
        ([TABLE, "--data-dir=/none"], 2, "error: Invalid value for '--data-dir': Directory"),
        (["README.md"], 1, "error: experiment = 'README.md': is not TOML"),
    ],
)
def test_invalid_argument_of_sweep_is_reported_in_one_line(
    monkeypatch, capsys, tmp_path, arguments, status, fragment
):
    monkeypatch.chdir(ROOT)
    if not any(argument.startswith("--results") for argument in arguments):
        arguments = [*arguments, f"--results={tmp_path}"]
    assert main(monkeypatch, "sweep", *arguments) == status
    error = capsys.readouterr().err
    assert fragment in error
    assert len(error.strip().splitlines()) == 1
