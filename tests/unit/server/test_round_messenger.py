"""A round's messages: what is sent, waited for, counted and dropped."""

import math

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from fedavg_app.config import RunConfig
from fedavg_app.flower_internals import (
    MESSAGE_UNAVAILABLE,
    BaseGrid,
    assign_message_id,
    error_reply,
)
from fedavg_app.server import round_messenger
from fedavg_app.server.awaited_replies import AwaitedReplies
from fedavg_app.server.client_sampling import CohortGrid
from fedavg_app.server.node_registry import NodeRegistry
from fedavg_app.server.polling import poll_replies, send
from fedavg_app.server.round_messenger import RoundMessenger
from strategies.rounds.exchange import Exchange
from strategies.rounds.flower_arrays import message_bytes
from strategies.rounds.values import ClientReport, RoundOutcome

pytestmark = pytest.mark.usefixtures("server_identity")


NODES = [10, 11, 12]
REFUSED = "its reply was refused, or its SuperNode unregistered; the SuperLink's log says why"


class ScriptedGrid(BaseGrid):
    """Node 10 + i answers after ``delays[i]`` seconds of the clock (None: never)."""

    def __init__(self, clock, delays):
        self.clock, self.delays = clock, delays
        self.num_polls = 0
        self.pending = {}  # by message id: when it is due, and the message

    def get_node_ids(self):
        return list(range(10, 10 + len(self.delays)))

    def push_messages(self, messages):
        ids = []
        for message in messages:
            ids.append(assign_message_id(message))
            delay = self.delays[message.metadata.dst_node_id - 10]
            if delay is not None:
                self.pending[ids[-1]] = (self.clock.now + delay, message)
        return ids

    def pull_messages(self, message_ids):
        self.num_polls += 1
        due = [
            key
            for key in message_ids
            if key in self.pending and self.pending[key][0] <= self.clock.now
        ]
        return [self.reply(self.pending.pop(key)[1]) for key in due]

    def reply(self, message):
        return Message(RecordDict(), reply_to=message)


def training_messages(nodes):
    """Return one empty training message for each node."""
    return [Message(RecordDict(), dst_node_id=node, message_type="train") for node in nodes]


def arrays(entries):
    return RecordDict({"arrays": ArrayRecord({"w": Array(np.zeros(entries, np.float32))})})


class AnsweringGrid(ScriptedGrid):
    """Replies have an array, of more entries the higher the node's id."""

    def reply(self, message):
        return Message(arrays(message.metadata.dst_node_id), reply_to=message)


def collect(grid, enough=3, unusable=()):
    """Send one message to each node; return the replies' nodes as they are taken, and the cost."""
    messages, taken = training_messages(NODES), []
    ids = grid.push_messages(messages)

    def take(reply):
        taken.append(reply.metadata.src_node_id)
        return taken[-1] not in unusable

    awaited = AwaitedReplies(CohortGrid(grid, NODES), messages, ids, None, enough, {})
    return taken, awaited.collect(take)


def test_replies_are_taken_in_the_clients_order_whatever_the_order_of_arrival(clock):
    taken, traffic = collect(AnsweringGrid(clock, [0.3, 0.1, 0.2]))
    assert taken == NODES
    assert traffic.unanswered == {}


def test_rejected_reply_does_not_count_among_the_replies_that_are_enough(clock):
    """Node 11's reply comes first, and is known to be unusable only once it has been read."""
    grid = AnsweringGrid(clock, [1.0, 0.0, 0.5])
    taken, traffic = collect(grid, enough=2, unusable=[11])
    assert taken == [11, 12, 10]
    assert traffic.unanswered == {}
    sizes = [1 + 128 + 4 * node for node in taken]  # what was sent counts, used or not
    assert (traffic.bytes_up, traffic.largest_up) == (sum(sizes), max(sizes))


class ServersReplyGrid(AnsweringGrid):
    """For node 11 the server answers, and for node 12 with an error, as Flower's does."""

    code = 5  # node unavailable

    def reply(self, message):
        node, reply = message.metadata.dst_node_id, super().reply(message)
        if node == 12:
            reply = error_reply(message, "Error: Node Unavailable", self.code)
        if node > 10:
            reply.metadata.__dict__["_src_node_id"] = 1
        return reply


@pytest.mark.parametrize(
    ("code", "now", "reason"),
    [
        (5, 0, "Error: Node Unavailable"),
        (MESSAGE_UNAVAILABLE, 0, REFUSED),
        # Flower calls this a SuperNode that may have been removed from the federation.
        (5, math.inf, "no reply in time"),
    ],
    ids=["unavailable", "refused", "expired"],
)
def test_reply_of_another_node_is_not_used(clock, monkeypatch, code, now, reason):
    monkeypatch.setattr(ServersReplyGrid, "code", code)
    monkeypatch.setattr(round_messenger.time, "time", lambda: now)
    taken, traffic = collect(ServersReplyGrid(clock, [0.0] * 3))
    assert taken == [10]
    assert traffic.unanswered == {11: "node 1 replied instead", 12: reason}
    assert traffic.bytes_up == 1 + 128 + 4 * 10


def messenger(grid, num_clients=10, in_flight=None, **keys):
    config = RunConfig(**{"seed": 3, "fraction_train": 0.3, "fraction_evaluate": 0.2, **keys})
    nodes = NodeRegistry(grid, num_clients)
    nodes.by_client = {client: 10 + client for client in range(num_clients)}
    return RoundMessenger(grid, nodes, config, in_flight=in_flight)


def exchanges(messages, outcome):
    """Yield one exchange; note the nodes whose replies are used in ``outcome``."""
    exchange = Exchange(messages, lambda reply: ClientReport(reply.metadata.src_node_id, 1))
    yield exchange
    outcome += [report.node_id for report in exchange.reports]
    return RoundOutcome()


def run(sender, nodes, server_round):
    """Run a round that asks these nodes; return those whose replies are used, and other reasons."""
    messages, used = training_messages(nodes), []
    _, traffic = sender.carry(lambda _: exchanges(messages, used), server_round, "train")
    assert {message.metadata.group_id for message in messages} <= {str(server_round)}
    return sorted(used), traffic.unanswered


@pytest.mark.parametrize(
    ("fraction", "share", "expected"), [(0.5, 0.14, 57), (0.25, 0.28, 32), (0.5, 0.1, 55)]
)
def test_over_selection_is_not_rounded_up_by_an_error_of_floats(fraction, share, expected):
    """50 * 0.14, 25 * 0.28 and 50 * (1 + 0.1) are 7, 7 and 55 and a little more in floats."""
    sender = messenger(None, num_clients=100, fraction_train=fraction, over_selection=share)
    sent = sender.cohort(1, "train")
    assert len(sent.get_node_ids()) == expected


def test_late_reply_is_fetched_and_dropped_in_a_later_round(clock):
    grid = AnsweringGrid(clock, [0.0, 5.0, 0.0])
    sender = messenger(grid, round_timeout=1.0)
    assert run(sender, NODES, 1) == ([10, 12], {11: "no reply in time"})
    assert len(grid.pending) == 1
    clock.now = 10.0
    assert run(sender, [10], 2) == ([10], {})
    assert not grid.pending


def test_late_reply_counts_in_a_later_round_and_its_node_is_not_asked_meanwhile(clock):
    grid, in_flight = AnsweringGrid(clock, [0.0, 5.0, 0.0]), {}
    sender = messenger(grid, 3, in_flight, round_timeout=60.0, fraction_train=0.5)
    assert run(sender, NODES, 1) == ([10, 12], {})  # two replies are enough
    assert [sent.node for sent in in_flight.values()] == [11]
    for server_round in range(2, 5):
        assert 11 not in sender.cohort(server_round, "train").get_node_ids()
    clock.now, grid.delays = 10.0, [9.0] * 3
    assert run(sender, [10], 2) == ([10, 11], {})
    assert not in_flight


def test_message_in_flight_that_has_expired_is_given_up(clock, monkeypatch):
    grid, in_flight = AnsweringGrid(clock, [0.0, None, 0.0]), {}
    sender = messenger(grid, 3, in_flight, round_timeout=60.0, fraction_train=0.5)
    run(sender, NODES, 1)
    (waiting,) = in_flight.values()
    monkeypatch.setattr(round_messenger.time, "time", lambda: waiting.expiry + 1)
    assert run(sender, [10], 2) == ([10], {11: "no reply in time"})
    assert not in_flight


def test_reply_to_a_message_that_has_expired_is_asked_for_once_more(clock, monkeypatch):
    grid = AnsweringGrid(clock, [0.0, None, 0.0])
    sender = messenger(grid, round_timeout=1.0)
    run(sender, NODES, 1)
    (unanswered,) = sender._late
    asked = []
    monkeypatch.setattr(grid, "pull_messages", lambda ids: asked.append(list(ids)) or [])
    query, expiry = [unanswered], sender._late[unanswered]
    for now, expected in ((expiry - 0.1, [query]), (expiry + 0.1, [query]), (expiry + 0.2, [])):
        asked.clear()
        monkeypatch.setattr(round_messenger.time, "time", lambda now=now: now)
        run(sender, [], 1)
        assert asked == expected


def test_round_of_two_exchanges_counts_the_bytes_of_both(clock):
    grid, used = AnsweringGrid(clock, [0.0] * 3), []

    def two_exchanges():
        asks = Exchange(training_messages(NODES), lambda reply: ClientReport(10, 1), is_main=False)
        yield asks
        assert len(asks.reports) == 3
        yield from exchanges(training_messages([12]), used)
        return RoundOutcome()

    sender = messenger(grid)
    _, traffic = sender.carry(lambda _: two_exchanges(), 1, "train")
    assert used == [12]
    assert traffic.num_sent == 1
    assert traffic.bytes_up == sum(1 + 128 + 4 * node for node in (*NODES, 12))


def test_bytes_of_values_and_names_are_counted_by_hand():
    array = Array(np.zeros(10, dtype=np.float32))
    assert len(array.data) == 128 + 40  # NumPy's header and ten floats
    records = {
        "arrays": ArrayRecord({"w": array}),
        "metrics": MetricRecord({"n": 3, "list": [1.0, 2.0]}),
        "config": ConfigRecord({"text": "äb", "empty": "", "on": True, "raw": b"123", "none": []}),
    }
    arrays = 1 + 168
    metrics = (1 + 8) + (4 + 16)
    config = (4 + 3) + (5 + 0) + (2 + 1) + (3 + 3) + (4 + 0)
    message = Message(RecordDict(records), dst_node_id=5, message_type="train")
    assert message_bytes(message) == arrays + metrics + config


def test_pauses_grow_while_no_reply_comes(clock):
    grid = ScriptedGrid(clock, [1.0])
    grid.send_and_receive(training_messages([10]))
    # At the shortest pause it would be 500 polls; growing by half each time it is about 15.
    assert 10 < grid.num_polls < 20


def test_message_that_could_not_be_sent_is_not_waited_for(clock):
    class PartlyRefusingGrid(ScriptedGrid):
        def push_messages(self, messages):
            return [*super().push_messages(messages[:1]), ""]

    grid = PartlyRefusingGrid(clock, [0.0, 0.0])
    messages = training_messages([10, 11])
    ids = send(grid, messages)
    assert ids[1] is None
    ((reply,),) = poll_replies(grid, ids)
    assert reply.metadata.src_node_id == 10
    awaited = AwaitedReplies(CohortGrid(grid, [10, 11]), messages, ids, None, 2, {})
    assert awaited.traffic.unanswered == {11: "the message could not be sent"}
