"""The command line within this process; tests/e2e has it as a process."""

import sys

import pytest

from fedavg_app.cli.main import run_command_line
from paper.__main__ import app
from tests.support.documents import ROOT

TABLE = "paper/experiments/stc-bits.toml"


@pytest.mark.parametrize(
    ("arguments", "status", "fragment"),
    [
        (["none.toml"], 2, "Invalid value for 'EXPERIMENT': File 'none.toml' does not exist"),
        ([TABLE, "--jobs=-1"], 2, "Invalid value for '--jobs': -1"),
        ([TABLE, "--results=README.md"], 2, "Invalid value for '--results': Directory"),
        ([TABLE, "--data-dir=/none"], 2, "Invalid value for '--data-dir': Directory"),
        (["README.md"], 1, "experiment = 'README.md': give a TOML file"),
    ],
)
def test_invalid_argument_of_sweep_is_reported_in_one_line(
    monkeypatch, capsys, tmp_path, arguments, status, fragment
):
    monkeypatch.chdir(ROOT)
    if not any(argument.startswith("--results") for argument in arguments):
        arguments = [*arguments, f"--results={tmp_path}"]
    monkeypatch.setattr(sys, "argv", ["paper", "sweep", *arguments])
    assert run_command_line(app) == status
    error = capsys.readouterr().err
    assert f"error: {fragment}" in error
    assert len(error.strip().splitlines()) == 1
