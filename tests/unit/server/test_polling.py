import pytest

from fedavg_app.flower_internals import assign_message_id
from fedavg_app.server.polling import MAX_PAUSE, poll_replies, send, send_and_receive
from tests.support.scripted_grid import Clock, ScriptedGrid, training_messages


@pytest.fixture
def clock(monkeypatch):
    return Clock().install(monkeypatch)


def sources(replies):
    return [reply.metadata.src_node_id for reply in replies]


def test_replies_come_in_the_order_of_their_arrival(clock):
    replies = send_and_receive(
        ScriptedGrid(clock, [0.1, 0.0, 0.05]), training_messages([10, 11, 12])
    )
    assert sources(replies) == [11, 12, 10]


def test_reply_is_fetched_soon_after_it_comes(clock):
    send_and_receive(ScriptedGrid(clock, [0.0, 0.05, 0.1]), training_messages([10, 11, 12]))
    assert clock.now < 0.1 + 0.05


def test_pause_between_polls_is_bounded(clock):
    send_and_receive(ScriptedGrid(clock, [100.0]), training_messages([10]))
    assert 100.0 <= clock.now < 100.0 + MAX_PAUSE


def test_deadline_ends_the_wait_for_nodes_that_never_answer(clock):
    grid = ScriptedGrid(clock, [0.0, None, 0.05])
    replies = send_and_receive(grid, training_messages([10, 11, 12]), timeout=0.4)
    assert sources(replies) == [10, 12]
    assert clock.now == pytest.approx(0.4)


def test_reply_at_the_deadline_counts(clock):
    grid = ScriptedGrid(clock, [0.4])
    assert sources(send_and_receive(grid, training_messages([10]), timeout=0.4)) == [10]


def test_pauses_grow_while_no_reply_comes(clock):
    grid = ScriptedGrid(clock, [1.0])
    send_and_receive(grid, training_messages([10]))
    # At the shortest pause it would be 500 polls; growing by half each time it is about 15.
    assert 10 < grid.num_polls < 20


def test_pauses_are_short_again_after_a_reply(clock):
    grid = ScriptedGrid(clock, [1.0, 1.5])
    replies = poll_replies(grid, send(grid, training_messages([10, 11])))
    next(replies)
    polls, now = grid.num_polls, clock.now
    next(replies)
    # From the longest pause so far, about 0.4 s, it would be one or two polls.
    assert grid.num_polls - polls > 5
    assert clock.now - now < 0.8


def test_replies_that_come_together_are_yielded_together(clock):
    grid = ScriptedGrid(clock, [0.0, 0.0, 1.0])
    groups = poll_replies(grid, send(grid, training_messages([10, 11, 12])))
    assert [sources(group) for group in groups] == [[10, 11], [12]]


def test_no_messages_need_no_poll(clock):
    grid = ScriptedGrid(clock, [])
    assert send_and_receive(grid, []) == []
    assert grid.num_polls == 0


def test_grid_that_can_wait_is_waited_on(clock):
    class WaitingGrid(ScriptedGrid):
        waited = 0

        def wait(self, seconds):
            self.waited += 1
            self.clock.now += 1.0

    grid = WaitingGrid(clock, [1.0])
    assert sources(send_and_receive(grid, training_messages([10]))) == [10]
    assert grid.waited == 1


def test_messages_that_a_grid_refuses_all_at_once_have_no_id(clock):
    """Flower's grid returns no ids at all where the messages are too large together."""

    class RefusingGrid(ScriptedGrid):
        def push_messages(self, messages):
            return []

    grid = RefusingGrid(clock, [0.0, 0.0])
    assert send(grid, training_messages([10, 11])) == [None, None]
    assert send_and_receive(grid, training_messages([10, 11])) == []
    assert grid.num_polls == 0


def test_message_that_could_not_be_sent_is_not_waited_for(clock):
    class PartlyRefusingGrid(ScriptedGrid):
        def push_messages(self, messages):
            return [*super().push_messages(messages[:1]), ""]

    grid = PartlyRefusingGrid(clock, [0.0, 0.0])
    ids = send(grid, training_messages([10, 11]))
    assert ids[1] is None
    assert [sources(group) for group in poll_replies(grid, ids)] == [[10]]


def test_send_and_receive_of_our_grids_waits_for_all_replies(clock):
    replies = ScriptedGrid(clock, [0.3, 0.0]).send_and_receive(training_messages([10, 11]))
    assert sources(replies) == [11, 10]


@pytest.mark.parametrize("count", [1, 7])
def test_every_message_gets_an_id_of_its_own(count):
    messages = training_messages([10] * count)
    assert len({assign_message_id(message) for message in messages}) == count
    assert all(message.metadata.message_id for message in messages)
