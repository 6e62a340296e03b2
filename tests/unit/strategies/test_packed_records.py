"""The one record of a compressed message and of its reply."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from strategies.compression.sync_protocol import Head, Version
from strategies.packed_records import pack_message, pack_reply, unpack_message, unpack_reply
from tests.support.compressed_network import Network

pytestmark = pytest.mark.usefixtures("server_identity")

SETTINGS = {"server-round": 3, "learning-rate": 0.1, "strategy": "stc", "shuffle": True}
HEAD = Head(7, 2, Version(2, 2**32 - 1))


def through_flower(record):
    """Return the record as a deployment's other end gets it."""
    return type(record).inflate(record.deflate())


@pytest.mark.parametrize("updates", [None, b"", b"\0\xff", bytes(5_000_000)])
def test_packed_message_arrives_as_it_was_sent(updates):
    packed = through_flower(pack_message(ConfigRecord(SETTINGS), HEAD, updates))
    settings, head, found = unpack_message(RecordDict({"config": packed}))
    assert (dict(settings), head, found) == (SETTINGS, HEAD, updates)


@pytest.mark.parametrize(
    "metrics", [{}, {"num-examples": 5, "loss": 0.25, "curve": [1.0, 2.0], "empty": []}]
)
@pytest.mark.parametrize("payload", [b"", b"\0\xff", bytes(5_000_000)])
def test_packed_reply_arrives_as_it_was_sent(metrics, payload):
    content = RecordDict({"metrics": MetricRecord(metrics)})
    pack_reply(content, payload)
    assert set(content) == {"update"}
    packed = through_flower(content["update"])
    found, entries = unpack_reply(RecordDict({"update": packed}))
    assert (found, dict(entries)) == (payload, metrics)


def test_other_records_of_a_reply_stay_what_they_are():
    own = ArrayRecord({"norm": Array(np.ones(2))})
    content = RecordDict({"metrics": MetricRecord({"num-examples": 5}), "own": own})
    pack_reply(content, b"ab")
    assert set(content) == {"update", "own"}
    assert content["own"] is own


def objects(message):
    """Return how many objects Flower makes of a message: each costs a request on both ways."""
    children = message.children or {}
    return 1 + sum(objects(child) for child in children.values())


@pytest.mark.parametrize("name", ["stc", "signsgd"])
def test_message_with_updates_and_its_reply_are_three_objects_each(name):
    """The message, the dictionary of its records, and one record."""
    network = Network(name, clients=1)
    network.run_round({0: network.random_change()})
    (message,) = network.configure(0)
    assert objects(message) == 3
    assert objects(network.train(message, network.random_change())) == 3
