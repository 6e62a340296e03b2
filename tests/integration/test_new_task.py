"""`new-task` writes a task that passes its own test and trains."""

import sys

import pytest

from tests.support.documents import ROOT
from tests.support.processes import ran, succeed

PROGRAM = [sys.executable, str(ROOT / "simulation.py")]


@pytest.mark.slow
def test_new_task_is_checked_tested_and_trained(tmp_path):
    done = succeed([*PROGRAM, "new-task", "mine", "--folder", str(tmp_path)], cwd=tmp_path)
    assert "check it with: fedavg check mine_task:TASK" in done.stdout
    succeed([*PROGRAM, "check", "mine_task:TASK"], cwd=tmp_path)
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    assert "1 passed" in succeed(tests, cwd=tmp_path).stdout
    again = ran([*PROGRAM, "new-task", "mine"], cwd=tmp_path)
    assert again.returncode == 1
    assert "mine_task.py exists already" in again.stderr
    wrong = ran([*PROGRAM, "new-task", "my-task"], cwd=tmp_path)
    assert "give letters, digits and '_', as in a Python name" in wrong.stderr
