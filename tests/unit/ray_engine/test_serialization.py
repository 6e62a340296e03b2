"""Messages as bytes for a connection, with shared records sent once."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

from fedavg_app.ray_engine.serialization import MIN_SHARED_BYTES, dumps, loads, shared_records


def model(size):
    return ArrayRecord({"w": Array(np.arange(size, dtype=np.uint8))})


def message(**records):
    return Message(RecordDict(records), dst_node_id=2, message_type="train")


LARGE, SMALL = model(MIN_SHARED_BYTES + 128), model(100)


@pytest.mark.parametrize(
    ("records", "shared"),
    [
        ([LARGE, LARGE, LARGE], [LARGE]),
        ([LARGE, model(MIN_SHARED_BYTES + 128)], []),  # equal, but not the same
        ([LARGE], []),
        ([SMALL, SMALL], []),
        ([ConfigRecord()] * 2, []),
        ([], []),
    ],
    ids=["shared", "equal", "one message", "small", "no arrays", "no message"],
)
def test_shared_records_are_the_large_ones_that_several_messages_hold(records, shared):
    found = shared_records([message(a=record) for record in records])
    assert [id(record) for record in found] == [id(record) for record in shared]


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
