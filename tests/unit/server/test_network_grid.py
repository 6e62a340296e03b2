"""The app's grid over the network, on a stand-in for Flower's `HttpGrid`."""

import sys
import threading
import time

import numpy as np
import pytest
from flwr.app import ArrayRecord, Context, Message, RecordDict

from fedavg_app.errors import ConfigError
from fedavg_app.flower_internals import assign_message_id, identify_server
from fedavg_app.server import network_grid
from fedavg_app.server.network_grid import NetworkGrid, is_network_grid
from fedavg_app.server.polling import poll_replies
from fedavg_app.server_app import app


class HttpError(Exception):
    def __init__(self, status):
        super().__init__(f"HTTP {status}")
        self.response = type("Response", (), {"status_code": status})


class HttpGrid:
    """Has Flower's name and methods; a reply is a function of the message."""

    def __init__(self, replies):
        self.replies, self.messages, self.asked = replies, {}, []
        self.failures = 0

    def get_node_ids(self):
        self._fail()
        return [2]

    def push_messages(self, messages):
        self._fail()
        ids = [assign_message_id(message) for message in messages]
        self.messages |= dict(zip(ids, messages, strict=True))
        return ids

    def pull_messages(self, ids):
        (message_id,) = ids
        self.asked.append(message_id)
        self._fail()
        message = self.messages[message_id]
        reply = self.replies[message.metadata.dst_node_id](message)
        return [] if reply is None else [reply]

    def _fail(self):
        if self.failures:
            self.failures -= 1
            raise HttpError(500)


def answer(message):
    return Message(RecordDict(), reply_to=message)


def rejected(_):
    raise ValueError("not a\nmessage")


def first(grid, ids):
    """Return the id of the message whose reply arrives first."""
    (reply,) = next(poll_replies(grid, ids, 30))
    return reply.metadata.reply_to_message_id


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    identify_server(1)
    monkeypatch.setattr(network_grid, "MIN_PAUSE", 0.01)


def make(**replies):
    """Return the grid, Flower's, and the ids of a message to each node 2, 3, ... by reply."""
    flower = HttpGrid(dict(enumerate(replies.values(), 2)))
    grid = NetworkGrid(flower)
    return grid, flower, grid.push_messages([message(node) for node in flower.replies])


def message(node, ttl=60.0):
    return Message(RecordDict(), dst_node_id=node, message_type="train", ttl=ttl)


def collect(grid, ids, timeout=10.0):
    replies = [reply for some in poll_replies(grid, ids, timeout) for reply in some]
    return {reply.metadata.reply_to_message_id: reply for reply in replies}


def test_reply_that_cannot_be_read_is_rejected_alone():
    grid, _, ids = make(honest=answer, malformed=rejected)
    found = collect(grid, ids)
    assert found[ids[0]].has_content()
    assert found[ids[1]].error.reason == "refused: ValueError: not a message"
    assert found[ids[1]].metadata.src_node_id == 3


def test_reply_whose_upload_has_stopped_does_not_delay_others():
    stopped = threading.Event()
    grid, _, ids = make(stuck=lambda _: stopped.wait(90) and None, honest=answer)
    assert first(grid, ids) == ids[1]
    stopped.set()


@pytest.mark.parametrize(("weights", "at_once"), [(100, 3), (10**7, 1)])
def test_replies_of_large_models_are_fetched_one_by_one(weights, at_once):
    fetching, most = [], []

    def slow(message):
        fetching.append(message)
        most.append(len(fetching))
        time.sleep(0.2)
        fetching.pop()
        return answer(message)

    flower = HttpGrid(dict.fromkeys((2, 3, 4), slow))
    grid = NetworkGrid(flower)
    model = RecordDict({"arrays": ArrayRecord([np.zeros(weights, np.float32)])})
    messages = [Message(model, dst_node_id=node, message_type="train") for node in (2, 3, 4)]
    assert len(collect(grid, grid.push_messages(messages))) == 3
    assert max(most) == at_once


def test_reply_that_says_it_answers_another_message_is_rejected():
    victims = []
    grid, flower, ids = make(thief=lambda _: answer(victims[0]), victim=lambda _: None)
    victims.append(flower.messages[ids[1]])
    (reply,) = next(poll_replies(grid, ids, 30))
    assert reply.metadata.reply_to_message_id == ids[0]
    assert "it says that it answers message" in reply.error.reason


def test_no_reply_is_lost_while_the_superlink_fails_temporarily():
    grid, flower, ids = make(honest=answer)
    assert list(grid.get_node_ids()) == [2]
    flower.failures = 2
    assert collect(grid, ids)[ids[0]].has_content()
    flower.failures = 1
    assert list(grid.get_node_ids()) == [2]  # the nodes of the last answer
    flower.failures = 1
    assert grid.push_messages([message(2)]) == [""]


def test_run_that_was_stopped_ends_the_server_app():
    class StoppedError(BaseException):
        pass

    def stop(_):
        raise StoppedError

    grid, _, ids = make(stopped=stop)
    with pytest.raises(StoppedError):
        collect(grid, ids)


def test_messages_that_have_expired_are_forgotten():
    grid, flower, _ = make(silent=lambda _: None)
    (expired,) = grid.push_messages([message(2, ttl=0.001)])
    time.sleep(0.01)
    grid.push_messages([])
    assert collect(grid, [expired], timeout=0.1) == {}
    assert expired not in flower.asked


def test_late_reply_does_not_end_the_wait_for_other_replies():
    answered = threading.Event()
    late = lambda request: answered.wait(9) and answer(request)  # noqa: E731
    grid, flower, ids = make(silent=lambda _: None, late=late)
    grid.pull_messages([ids[1]])  # looked for once, and then no more
    answered.set()
    began, looks = time.monotonic(), len(flower.asked)
    assert collect(grid, ids[:1], timeout=1.0) == {}
    assert time.monotonic() - began >= 1
    assert len(flower.asked) - looks < 20  # `poll_replies` waits 0.05 s
    assert list(collect(grid, ids[1:])) == ids[1:]


def test_nodes_that_are_waited_for_are_named_once(monkeypatch, caplog):
    caplog.set_level("INFO")
    monkeypatch.setattr(network_grid, "SILENCE", 0.1)
    grid, _, ids = make(silent=lambda _: None, another=lambda _: None)
    collect(grid, ids, timeout=2.0)
    assert [record.message for record in caplog.records] == ["waiting for node 2, node 3"]


def test_simulated_grids_are_not_network_grids():
    grid, flower, _ = make()
    assert is_network_grid(grid)
    assert is_network_grid(flower)
    assert not is_network_grid(object())


def test_links_of_real_devices_are_not_simulated(monkeypatch):
    monkeypatch.setattr(sys, "tracebacklimit", 1000, raising=False)  # undoes what the app sets
    context = Context(1, 1, {}, RecordDict(), {"links": "4g"})
    with pytest.raises(ConfigError, match="leave it out: these devices have their own"):
        app(HttpGrid({}), context)
