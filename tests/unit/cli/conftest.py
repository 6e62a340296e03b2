"""What several commands are tested with: two finished trainings, and what a command prints."""

import sys

import pytest

from fedavg_app.cli.main import main
from tests.support.run_folders import only_folder

TRAINING = (
    "central", "--task", "mnist-logistic", "--data-source", "embedded", "--num-server-rounds", "40",
    "--evaluate-every", "10",
)  # fmt: skip


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Return the folders of two trainings that differ in the learning rate."""
    parent = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        for rate in ("0.04", "0.01"):
            words = [*TRAINING, "--learning-rate", rate, "--run-dir", str(parent / rate)]
            patch.setattr(sys, "argv", ["fedavg", *words])
            assert main() == 0
    return [only_folder(parent / rate) for rate in ("0.04", "0.01")]


@pytest.fixture
def show(monkeypatch, command_line):
    """Return a function that runs a command, which must succeed, and returns its output."""
    monkeypatch.setenv("COLUMNS", "120")

    def run(*words):
        status, shown, _ = command_line(*words)
        assert status == 0
        return shown

    return run
