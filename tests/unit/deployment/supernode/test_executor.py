"""The executor's fork server, as a device starts it."""

import logging

import pytest

from deployment.supernode.executor import ForkingExecutor

pytestmark = pytest.mark.slow


def test_fork_server_has_the_libraries(caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    with caplog.at_level(logging.INFO, "flwr"):
        ForkingExecutor().warm_up()
    (record,) = caplog.records
    assert record.getMessage().startswith("Clients start warm, after ")
