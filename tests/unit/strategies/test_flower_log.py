"""What Flower's strategies log behind the adapter."""

import logging
from logging.handlers import BufferingHandler

import numpy as np
import pytest
from flwr.app import ConfigRecord

import strategies
from tests.support.replies import cohort, record, reply

pytestmark = pytest.mark.usefixtures("server_identity")

FLOWER, OURS = logging.getLogger("flwr"), "fedavg_app.strategies"


@pytest.fixture(params=[logging.DEBUG, logging.WARNING], ids=["flwr run", "command line"])
def flowers(request, monkeypatch):
    """A handler in place of Flower's own, at the level that either way to run has."""
    handler = BufferingHandler(1000)
    monkeypatch.setattr(FLOWER, "handlers", [handler])
    level = FLOWER.level
    FLOWER.setLevel(request.param)
    yield handler
    FLOWER.setLevel(level)


def test_lines_of_a_strategy_are_our_debug_messages(flowers, caplog):
    caplog.set_level(logging.DEBUG, logger=OURS)
    adapter = strategies.build("flwr.serverapp.strategy:FedAdam", {"eta": 0.5})
    adapter.summary()
    for server_round in (1, 2):
        arrays = record({"w": np.ones(2, np.float32)})
        adapter.configure_train(server_round, arrays, ConfigRecord(), cohort(1, 2))
        adapter.finish_round([reply(1, arrays), reply(2, arrays)])
    assert flowers.buffer == []
    assert {record.name for record in caplog.records} == {OURS}
    shown = [r.getMessage() for r in caplog.records if r.levelno == logging.INFO]
    assert len(shown) == 1
    assert shown[0].startswith("FedAdam: ")
    debug = [r.getMessage() for r in caplog.records if r.levelno == logging.DEBUG]
    assert sum("Sampled 2 nodes" in line for line in debug) == 2
    assert any("eta (0.5)" in line for line in debug)


def test_warning_of_a_strategy_is_our_warning_once(flowers, caplog):
    adapter = strategies.build("flwr.serverapp.strategy:Bulyan", {"num_malicious_nodes": 1})
    arrays = record({"w": np.ones(2, np.float32)})
    adapter.configure_train(1, arrays, ConfigRecord(), cohort(1))
    assert adapter.finish_round([reply(1, arrays)]).model is None
    warnings = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert [r.name for r in warnings] == [OURS]
    assert "Insufficient replies" in warnings[0].getMessage()
    assert flowers.buffer == []
