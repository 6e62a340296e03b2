"""How often a SuperExec looks for tasks."""

import pytest

from deployment.supernode import executor, internals
from deployment.supernode.executor import ForkingExecutor


@pytest.mark.parametrize(("idle", "seconds"), [(0, 0), (4, 0.4), (3600, 0.95)])
def test_executor_without_a_client_waits_by_the_time_since_the_last_one(monkeypatch, idle, seconds):
    now, slept = [100.0], []
    monkeypatch.setattr(internals.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(executor.time, "sleep", slept.append)
    found = ForkingExecutor()
    now[0] += idle
    found.reconcile()
    assert slept == [pytest.approx(seconds)]
