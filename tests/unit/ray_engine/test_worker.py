"""A worker without Ray: deadlines, errors and the states of its clients."""

import time
from collections import deque

import pytest
from flwr.app import ConfigRecord, Message, RecordDict

from fedavg_app.flower_internals import FIRST_NODE_ID, assign_message_id
from fedavg_app.ray_engine import worker as worker_module
from fedavg_app.ray_engine.request_queue import RequestQueue, WorkerError
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
    return Worker(WorkerSettings(1, {}, 10, 2**20, 0.0, str(tmp_path), b"key", 4))


def message(sleep=0.0, client=3, server_round=1, message_type="train", **config):
    content = RecordDict({"config": ConfigRecord({"sleep": sleep, **config})})
    node, group = FIRST_NODE_ID + client, str(server_round)
    made = Message(content, dst_node_id=node, message_type=message_type, group_id=group)
    assign_message_id(made)
    return made


def handle(worker, made, seconds=None):
    return worker.handle(made, seconds, time.monotonic())


class Queued:
    """A `RequestQueue` without a connection."""

    take_if = RequestQueue.take_if

    def __init__(self, requests):
        self._requests = deque(requests)


def answers(worker, first, *others):
    """Return the worker's answers to the first request and to those that join it."""
    now = time.monotonic()
    return list(worker._answers((now, first), Queued((now, request) for request in others)))


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


@pytest.mark.parametrize(
    ("others", "joined"),
    [
        ([{"client": 4}, {"client": 5}], 3),
        ([{"client": n} for n in (4, 5, 6, 7)], 4),  # the settings' clients per batch
        ([{"client": 4}, {"client": 4}], 2),
        ([{"client": 3}], 1),
        ([{"client": 4, "server_round": 2}], 1),
        ([{"client": 4, "message_type": "evaluate"}], 1),
        ([{"client": 4, "message_type": "train.gradient"}], 1),
    ],
    ids=["all", "four", "same client", "own client", "other round", "evaluation", "gradient"],
)
def test_training_of_other_clients_in_the_same_round_is_joined(worker, others, joined):
    requests = [("handle", made, None) for made in (message(), *(message(**o) for o in others))]
    found = answers(worker, *requests)
    assert len(found) == joined
    for (_, made, _), answer in zip(requests, found, strict=False):
        assert answer.reply.metadata.dst_node_id == made.metadata.src_node_id
        assert answer.reply.metadata.reply_to_message_id == made.metadata.message_id
        assert answer.has_state


def test_gradients_and_evaluations_are_not_joined(worker):
    for kind in ("train.gradient", "evaluate"):
        requests = [("handle", message(client=n, message_type=kind), None) for n in (1, 2)]
        assert len(answers(worker, *requests)) == 1


def test_joined_client_that_raises_or_has_no_state_loses_its_own_reply_only(worker, monkeypatch):
    pop = worker._states.pop

    def pop_state(partition):
        if partition == 5:
            raise OSError("the disk is broken")
        return pop(partition)

    monkeypatch.setattr(worker._states, "pop", pop_state)
    broken = message(client=4, **{"raise": "broken"})
    made = [message(), broken, message(client=5), message(client=6)]
    found = answers(worker, *(("handle", one, None) for one in made))
    assert found[1].reply.error.reason.endswith("ValueError: broken\n")
    assert isinstance(found[2], WorkerError)
    assert found[2].reason == "OSError: the disk is broken"
    assert not found[0].reply.has_error()
    assert not found[3].reply.has_error()
