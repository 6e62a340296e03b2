"""Messages as bytes for a connection, with shared records sent once."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from fedavg_app.ray_engine.serialization import MIN_SHARED_BYTES, dumps, loads, shared_records

pytestmark = pytest.mark.usefixtures("server_identity")


def model(size):
    return ArrayRecord({"w": Array(np.arange(size, dtype=np.uint8))})


def message(**records):
    return Message(RecordDict(records), dst_node_id=2, message_type="train")


LARGE, SMALL = model(MIN_SHARED_BYTES + 128), model(100)
LARGE_CONFIG = ConfigRecord({"rate": 0.1, "updates": bytes(MIN_SHARED_BYTES)})
SMALL_CONFIG = ConfigRecord({"rate": 0.1, "updates": bytes(MIN_SHARED_BYTES - 1)})


@pytest.mark.parametrize(
    ("records", "shared"),
    [
        ([LARGE, LARGE, LARGE], [LARGE]),
        ([LARGE, model(MIN_SHARED_BYTES + 128)], []),  # equal, but not the same
        ([LARGE], []),
        ([SMALL, SMALL], []),
        ([LARGE_CONFIG, LARGE_CONFIG], [LARGE_CONFIG]),
        ([LARGE_CONFIG, LARGE_CONFIG.copy()], []),
        ([SMALL_CONFIG, SMALL_CONFIG], []),
        ([MetricRecord()] * 2, []),
        ([], []),
    ],
    ids=[
        "shared", "equal", "one message", "small", "shared bytes", "equal bytes", "small bytes",
        "metrics", "no message",
    ],
)  # fmt: skip
def test_shared_records_are_the_large_ones_that_several_messages_hold(records, shared):
    found = shared_records([message(a=record) for record in records])
    assert [id(record) for record in found] == [id(record) for record in shared]


def test_settings_are_not_shared_beside_a_large_model():
    """The receiver's copy is one object for all messages, and client mods may change settings."""
    settings = ConfigRecord({"rate": 0.1})
    found = shared_records([message(a=LARGE, b=settings) for _ in range(2)])
    assert [id(record) for record in found] == [id(LARGE)]


def test_content_survives_the_round_trip_without_shared_records():
    content = loads(dumps(("requests", [message(a=SMALL)])))
    assert content[1][0].content["a"] == SMALL


def test_shared_record_is_not_in_the_bytes_and_is_replaced_by_the_copy_of_the_receiver():
    own = RecordDict({"a": LARGE, "b": SMALL})
    data = dumps(own, [LARGE])
    assert len(data) < MIN_SHARED_BYTES
    copy = model(MIN_SHARED_BYTES + 128)
    received = loads(data, [copy])
    assert received["a"] is copy
    assert received["b"] == SMALL


def test_bytes_that_messages_of_one_request_have_in_common_are_sent_once():
    """Small updates are not shared; in a short round each worker gets all messages at once."""
    messages = [message(a=SMALL_CONFIG) for _ in range(10)]
    assert len(dumps(messages)) < MIN_SHARED_BYTES + 10_000
