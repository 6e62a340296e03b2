"""The executor: its fork server, and how often it looks for tasks."""

import sys

import pytest

from deployment.supernode import executor, internals
from deployment.supernode.executor import ForkingExecutor
from tests.support.documents import ROOT
from tests.support.processes import succeed


@pytest.mark.slow
def test_fork_server_has_the_libraries():
    program = "from deployment.supernode import executor; executor.ForkingExecutor().warm_up()"
    done = succeed([sys.executable, "-c", program], cwd=ROOT)
    assert "Clients start warm, after " in done.stdout + done.stderr


@pytest.mark.parametrize(("idle", "seconds"), [(0, 0), (4, 0.4), (3600, 0.95)])
def test_executor_without_a_client_waits_by_the_time_since_the_last_one(monkeypatch, idle, seconds):
    now, slept = [100.0], []
    monkeypatch.setattr(internals.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(executor.time, "sleep", slept.append)
    found = ForkingExecutor()
    now[0] += idle
    found.reconcile()
    assert slept == [pytest.approx(seconds)]
