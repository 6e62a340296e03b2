"""The executor's fork server, as a device starts it."""

import logging

import pytest

from deployment.supernode.executor import ForkingExecutor

pytestmark = pytest.mark.slow


def test_memory_of_the_fork_server_is_logged(caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    with caplog.at_level(logging.INFO, "flwr"):
        ForkingExecutor().warm_up()
    (line,) = [record.getMessage() for record in caplog.records]
    pid, resident, own = (
        int(word.strip("(")) for word in line.split() if word.strip("(").isdigit()
    )
    assert pid > 1
    assert resident > own > 20  # torch alone has more
