"""A plan of real runs, interrupted by SIGTERM: its choice is the run that its command makes."""

import re
import shlex
import signal
import subprocess
import sys

import pytest

from tests.support.documents import ROOT
from tests.support.processes import Processes, succeed, until
from tests.support.run_folders import assert_model, only_folder, read_summary

pytestmark = pytest.mark.long

METHODS = """
[[variants]]
strategy = "fedavg"
local-steps = 5

[[variants]]
strategy = "stc"
strategy-args = "sparsity-up = 0.04, sparsity-down = 0.04"
local-steps = 5
"""


@pytest.mark.timeout(900)
def test_interrupted_plan_chooses_the_run_that_its_command_makes(tmp_path):
    (tmp_path / "methods.toml").write_text(METHODS)
    program = [sys.executable, str(ROOT / "simulation.py")]
    words = [
        *program, "plan", "mnist-logistic", "--data-source", "embedded", "--num-clients", "10",
        "--fraction-train", "0.5", "--budget", "2 MB both", "--num-server-rounds", "44",
        "--candidates", "methods.toml", "--run-dir", "plans",
    ]  # fmt: skip
    with Processes() as processes:
        first = subprocess.Popen(
            words, cwd=tmp_path, env=processes.environment, start_new_session=True,
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert until(lambda: list((tmp_path / "plans").glob("*/*/summary.json")), 300)
        first.send_signal(signal.SIGTERM)
        assert "the same command continues" in first.communicate(timeout=100)[0]
        assert first.returncode != 0
        shown = succeed(words, 600, cwd=tmp_path, env=processes.environment).stdout
    chosen = re.search(r"; its run is (.+)", shown)[1]
    command = re.search(r"the command: fedavg (.+)", shown)[1]
    succeed([*program, *shlex.split(command)], 200, cwd=tmp_path)
    again = only_folder(tmp_path / "runs")
    assert_model(tmp_path / chosen, again)
    assert read_summary(again)["spent"] == read_summary(tmp_path / chosen)["spent"] <= 2
