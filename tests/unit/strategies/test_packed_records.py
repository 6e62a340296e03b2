"""The one record of a compressed message and of its reply."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from strategies.compression.sync_protocol import Head, Version
from strategies.packed_records import pack_message, pack_reply, unpack_message, unpack_reply
from tests.support.compressed_network import Network

pytestmark = pytest.mark.usefixtures("server_identity")

SETTINGS = {"server-round": 3, "learning-rate": 0.1, "strategy": "stc", "shuffle": True}
HEAD = Head(2, Version(2, 2**32 - 1))


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


def test_packing_and_unpacking_leave_the_records_as_they_are():
    """Messages share them."""
    settings = ConfigRecord(SETTINGS)
    packed = pack_message(settings, HEAD, b"ab")
    before = dict(packed)
    unpack_message(RecordDict({"config": packed}))
    reply = ConfigRecord({"payload": b"ab", "num-examples": 5})
    unpack_reply(RecordDict({"update": reply}))
    assert (dict(settings), dict(packed)) == (SETTINGS, before)
    assert dict(reply) == {"payload": b"ab", "num-examples": 5}


@pytest.mark.parametrize("name", ["head", "updates"])
def test_setting_with_the_name_of_an_entry_is_an_error(name):
    with pytest.raises(ValueError, match=f"must not have a key '{name}'"):
        pack_message(ConfigRecord({name: 1}), HEAD, None)


def test_metric_with_the_name_of_the_payload_is_an_error():
    content = RecordDict({"metrics": MetricRecord({"payload": 1.0})})
    with pytest.raises(ValueError, match="must not be called 'payload'"):
        pack_reply(content, b"")


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


def test_small_bytes_cost_flower_no_more_than_settings_of_their_length():
    """An entry of bytes travels as such, not as text."""
    empty, filled = (ConfigRecord({"payload": bytes(size)}) for size in (0, 10_000))
    assert len(filled.deflate()) - len(empty.deflate()) < 10_010
