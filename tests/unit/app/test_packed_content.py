"""A message's content as one object is the same content again."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.proto.recorddict_pb2 import RecordDict as ProtoRecordDict
from hypothesis import given
from hypothesis import strategies as st

from deployment.superlink.unfolded_size import protobuf_size
from fedavg_app import packed_content
from fedavg_app.flower_internals import content_size
from fedavg_app.packed_content import pack, pack_all, packed_size, unpack
from strategies.rounds.flower_arrays import message_bytes

pytestmark = pytest.mark.usefixtures("server_identity")


def message(content):
    return Message(content, dst_node_id=2, message_type="train")


CONTENTS = [
    RecordDict(),
    RecordDict(
        {
            "arrays": ArrayRecord({"w": Array(np.float16([[1, -0.0]])), "é": Array(np.zeros(0))}),
            "metrics": MetricRecord({"loss": 0.1, "n": 3, "list": [1.5, 2.5]}),
            "config": ConfigRecord({"b": b"\0\xff", "s": "", "i": -1, "t": True, "l": ["a", ""]}),
        }
    ),
]


@pytest.mark.parametrize("content", CONTENTS, ids=["empty", "all"])
def test_content_is_the_same_after_packing(content):
    packed = message(pack(content))
    size = message_bytes(message(content))
    assert unpack(packed)
    assert message_bytes(packed) == size
    assert list(packed.content) == list(content)
    for name, record in content.items():
        theirs = packed.content[name]
        assert list(theirs) == list(record)
        for key, value in record.items():
            same = value.data == theirs[key].data if isinstance(value, Array) else None
            assert same or (value == theirs[key] and type(value) is type(theirs[key]))


def test_contents_of_the_same_records_are_packed_once():
    again, other = RecordDict(dict(CONTENTS[1])), RecordDict({"config": ConfigRecord({"i": 2})})
    first, second, third = pack_all([CONTENTS[1], again, other])
    assert first is second
    assert first["packed"]["content"] == pack(CONTENTS[1])["packed"]["content"]
    assert third["packed"]["content"] == pack(other)["packed"]["content"]


def test_message_that_is_not_packed_is_left_unchanged():
    plain = message(CONTENTS[1])
    assert not unpack(plain)
    assert plain.content is CONTENTS[1]


def test_large_arrays_are_not_packed_with_the_others(monkeypatch):
    monkeypatch.setattr(packed_content, "MAX_ARRAY_BYTES", 3)
    packed = message(pack(CONTENTS[1]))
    assert list(packed.content) == ["packed", "arrays"]
    assert packed.content["arrays"] is CONTENTS[1]["arrays"]
    assert unpack(packed)
    assert dict(packed.content) == dict(CONTENTS[1])


def test_large_content_is_an_array_of_bytes(monkeypatch):
    monkeypatch.setattr(packed_content, "MAX_OBJECT_BYTES", 3)
    packed = message(pack(CONTENTS[1]))
    size = message_bytes(message(CONTENTS[1]))
    assert isinstance(packed.content["packed"], ArrayRecord)
    assert unpack(packed)
    assert message_bytes(packed) == size
    assert packed.content["config"] == CONTENTS[1]["config"]


@pytest.mark.parametrize("entry", [b"\xff\xff", "text", 3])
def test_malformed_content_is_one_error(entry):
    with pytest.raises(ValueError, match=r"malformed content|no bytes 'content'"):
        unpack(message(RecordDict({"packed": ConfigRecord({"content": entry})})))


@given(st.binary(max_size=200) | st.binary(max_size=9).map(lambda part: part * 20))
def test_content_is_said_to_take_what_the_gate_says(data):
    """Both refuse it where either does."""
    kind = ProtoRecordDict.DESCRIPTOR
    try:
        expected = len(data) + protobuf_size(memoryview(data), kind, float("inf"))
    except (ValueError, IndexError, KeyError):
        return
    assert content_size(data) == expected


def test_content_of_many_empty_items_is_refused_unread():
    content = RecordDict({"packed": ConfigRecord({"content": b"\x0a\x00" * 10**5})})
    with pytest.raises(ValueError, match="takes 32200000 bytes, at most 1000000 are expected"):
        unpack(message(content), 10**6)


def test_large_arrays_count_as_much_packed_or_not(monkeypatch):
    """A reply that is packed is bounded by the size of a message whose arrays are not."""
    content = RecordDict({"arrays": ArrayRecord({"w": Array(np.zeros(10**5))})})
    packed = packed_size(pack(content))
    monkeypatch.setattr(packed_content, "MAX_ARRAY_BYTES", 0)
    beside = packed_size(pack(content))
    assert 8 * 10**5 < beside < packed < beside + 10**4
