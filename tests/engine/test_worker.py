"""A worker without Ray: what a deadline does to a client."""

import time

import pytest
from flwr.app import ConfigRecord, Message, RecordDict

from fedavg_app.engine import worker
from fedavg_app.engine.worker import Setting, Worker
from fedavg_app.internals import FIRST_NODE_ID, stamp


@pytest.fixture
def one(tmp_path, monkeypatch):
    """A worker whose ClientApp counts in the client's state, and then sleeps as long as told."""

    def app(message, context):
        count = context.state.config_records.get("count", ConfigRecord({"n": 0}))["n"]
        context.state["count"] = ConfigRecord({"n": count + 1})
        time.sleep(message.content["config"]["sleep"])
        return Message(context.state.copy(), reply_to=message)

    monkeypatch.setattr(worker, "app", app)
    return Worker(Setting(1, {}, 10, 2**20, 0.0, str(tmp_path), b"key"))


def handle(one, sleep, seconds):
    content = RecordDict({"config": ConfigRecord({"sleep": sleep})})
    message = Message(content, dst_node_id=FIRST_NODE_ID + 3, message_type="train")
    stamp(message)
    reply, stateful, took = one.handle(message, seconds, time.monotonic())
    return reply, stateful, took


def test_a_client_that_is_interrupted_has_the_state_it_had_before(one):
    assert handle(one, 0, None)[0].content["count"]["n"] == 1
    reply, stateful, took = handle(one, 60, 0.3)
    assert reply.error.reason == "still at work at the round's deadline"
    assert stateful
    assert 0.2 < took < 10
    assert handle(one, 0, 5.0)[0].content["count"]["n"] == 2


def test_after_the_deadline_a_client_is_not_begun(one):
    reply, stateful, _ = handle(one, 0, -1.0)
    assert reply.error.reason == "not begun before the round's deadline"
    assert not stateful
