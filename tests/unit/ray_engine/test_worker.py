"""A worker without Ray: deadlines, errors and the states of its clients."""

import time

import pytest
from flwr.app import ConfigRecord, Message, RecordDict

from fedavg_app.flower_internals import FIRST_NODE_ID, assign_message_id
from fedavg_app.ray_engine import worker as worker_module
from fedavg_app.ray_engine.request_queue import WorkerError
from fedavg_app.ray_engine.worker import Worker, WorkerSettings

pytestmark = pytest.mark.usefixtures("server_identity")


@pytest.fixture
def worker(tmp_path, monkeypatch):
    """A worker whose ClientApp counts in the client's state, then sleeps or raises as told."""

    def app(message, context):
        count = context.state.config_records.get("count", ConfigRecord({"n": 0}))["n"]
        context.state["count"] = ConfigRecord({"n": count + 1})
        config = message.content["config"]
        time.sleep(config["sleep"])
        if "raise" in config:
            raise ValueError(config["raise"])
        return Message(context.state.copy(), reply_to=message)

    monkeypatch.setattr(worker_module, "app", app)
    return Worker(WorkerSettings(1, {}, 10, 2**20, 0.0, str(tmp_path), b"key"))


def message(sleep=0.0, client=3, server_round=1, message_type="train", **config):
    content = RecordDict({"config": ConfigRecord({"sleep": sleep, **config})})
    node, group = FIRST_NODE_ID + client, str(server_round)
    made = Message(content, dst_node_id=node, message_type=message_type, group_id=group)
    assign_message_id(made)
    return made


def handle(worker, made, seconds=None):
    return worker.handle(made, seconds, time.monotonic())


def answers(worker, *requests):
    return [worker._answer((time.monotonic(), request)) for request in requests]


def test_interrupted_client_keeps_the_state_it_had_before(worker):
    assert handle(worker, message()).reply.content["count"]["n"] == 1
    received = time.monotonic()
    handled = worker.handle(message(sleep=60.0), 0.5, received)
    assert handled.reply.error.reason == "still at work at the round's deadline"
    assert handled.has_state
    assert 0.49 < time.monotonic() - received < 30
    assert handle(worker, message(), 5.0).reply.content["count"]["n"] == 2


def test_client_is_not_run_after_the_deadline(worker):
    handled = handle(worker, message(), -1.0)
    assert handled.reply.error.reason == "not begun before the round's deadline"
    assert not handled.has_state


def test_reply_of_a_client_that_raises_carries_the_traceback_and_its_state_is_kept(worker):
    handled = handle(worker, message(**{"raise": "broken\ndisk"}))
    reason = handled.reply.error.reason
    assert reason.startswith("Traceback (most recent call last):\n")
    assert 'raise ValueError(config["raise"])' in reason
    assert reason.endswith("ValueError: broken\ndisk\n")
    assert handled.has_state
    assert handle(worker, message()).reply.content["count"]["n"] == 2


def test_request_that_raises_is_answered_with_its_error_and_traceback(worker, monkeypatch):
    def evaluate(*_):
        raise ValueError("no such model")

    monkeypatch.setattr(worker, "evaluate", evaluate)
    (answer,) = answers(worker, ("evaluate", None, None, []))
    assert isinstance(answer, WorkerError)
    assert answer.reason == "ValueError: no such model"
    assert answer.traceback.startswith("Traceback (most recent call last):\n")
    assert "in evaluate" in answer.traceback


def test_state_moves_with_pop_state_and_put_state(worker):
    handle(worker, message())
    (state,) = answers(worker, ("pop_state", 3))
    assert state["count"]["n"] == 1
    assert not worker.pop_state(3)
    worker.put_state(3, state)
    assert handle(worker, message()).reply.content["count"]["n"] == 2
