import time

import pytest
from flwr.app import Message, RecordDict

from fedavg_app import exchange as module
from fedavg_app.cohort import CohortGrid
from fedavg_app.exchange import exchange
from fedavg_app.internals import BaseGrid, stamp
from fedavg_app.post import Exchange


class SlowGrid(BaseGrid):
    """Answers message i after ``delays[i]`` seconds (None: never)."""

    def __init__(self, delays):
        self.delays = delays
        self.pulls = 0

    def get_node_ids(self):
        return list(range(10, 10 + len(self.delays)))

    def push_messages(self, messages):
        now = time.monotonic()
        self.due = {
            stamp(message): (None if delay is None else now + delay, message)
            for message, delay in zip(messages, self.delays, strict=True)
        }
        return list(self.due)

    def pull_messages(self, message_ids):
        self.pulls += 1
        ready = [
            key
            for key, (due, _) in self.due.items()
            if key in message_ids and due is not None and due <= time.monotonic()
        ]
        return [Message(RecordDict(), reply_to=self.due.pop(key)[1]) for key in ready]


def messages(count):
    return [Message(RecordDict(), dst_node_id=10 + i, message_type="train") for i in range(count)]


def test_all_replies_are_collected_soon_after_they_come():
    grid = SlowGrid([0.0, 0.05, 0.1])
    started = time.monotonic()
    replies = exchange(grid, messages(3))
    assert {reply.metadata.src_node_id for reply in replies} == {10, 11, 12}
    assert time.monotonic() - started < 1.0


def test_a_deadline_ends_the_wait_for_those_who_never_answer():
    started = time.monotonic()
    replies = exchange(SlowGrid([0.0, None, 0.05]), messages(3), timeout=0.4)
    assert {reply.metadata.src_node_id for reply in replies} == {10, 12}
    assert 0.4 <= time.monotonic() - started < 1.5


def test_pauses_grow_while_nothing_comes():
    grid = SlowGrid([1.0])
    exchange(grid, messages(1))
    # At the shortest pause it would be 500 looks; growing by half each time it is about 15.
    assert grid.pulls < 40


def test_nothing_to_send_is_no_wait():
    assert exchange(SlowGrid([]), []) == []


class FullGrid(SlowGrid):
    """Refuses all messages at once, as Flower's grid does where they are too large together."""

    def push_messages(self, messages):
        return []


def test_messages_that_a_grid_refuses_are_not_waited_for():
    grid = FullGrid([0.0, 0.0])
    assert exchange(grid, messages(2)) == []
    late = set()
    held = Exchange(CohortGrid(grid, [10, 11]), messages(2), None, 2, late)
    assert list(held.replies()) == []
    assert held.silent == dict.fromkeys([10, 11], "it could not be sent a message")
    assert late == set()


def test_send_and_receive_of_our_grids_is_the_exchange(monkeypatch):
    monkeypatch.setattr(module, "FIRST_PAUSE", 0.001)
    assert len(SlowGrid([0.0]).send_and_receive(messages(1), timeout=1)) == 1


@pytest.mark.parametrize("count", [1, 7])
def test_every_message_gets_an_id_of_its_own(count):
    sent = messages(count)
    assert len({stamp(message) for message in sent}) == count
    assert all(message.metadata.message_id for message in sent)
