"""What objects are said to take, against what they take."""

import tracemalloc

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from flwr.proto.recorddict_pb2 import RecordDict as ProtoRecordDict
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from hypothesis import given, settings
from hypothesis import strategies as st

from deployment.superlink.unfolded_size import Objects, protobuf_size, read_part

NAMES = st.text(max_size=12)
NUMBERS = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats(allow_nan=False)
METRICS = st.dictionaries(
    NAMES, FLOATS | NUMBERS | st.lists(FLOATS) | st.lists(NUMBERS), max_size=50
)
SETTINGS = st.dictionaries(
    NAMES, FLOATS | NUMBERS | st.binary() | NAMES | st.booleans() | st.lists(NAMES), max_size=50
)
ARRAYS = st.dictionaries(
    NAMES, st.integers(0, 300).map(lambda n: Array(np.zeros(n, np.float32))), max_size=20
)
CONTENTS = st.dictionaries(
    NAMES,
    METRICS.map(MetricRecord) | SETTINGS.map(ConfigRecord) | ARRAYS.map(ArrayRecord),
    max_size=5,
)


def unfolded(contents, root):
    """Return what an object is said to take, with all that it refers to."""
    objects = Objects(len(contents))
    for name, content in contents.items():
        objects.add(name, read_part(content))
    return objects.size(root)


def memory_of(read):
    """Return the most bytes of Python's memory that a call takes."""
    tracemalloc.start()
    try:
        kept = read()
        _, peak = tracemalloc.get_traced_memory()
        del kept
    finally:
        tracemalloc.stop()
    return peak


@settings(max_examples=40, deadline=None)
@given(CONTENTS)
def test_message_takes_at_most_twice_what_it_is_said_to(records):
    content = RecordDict(records)
    contents = {key: one.deflate() for key, one in get_all_nested_objects(content).items()}
    said = unfolded(contents, content.object_id)
    assert said >= sum(map(len, contents.values()))
    peak = memory_of(
        lambda: inflate_object_from_contents(content.object_id, contents, keep_object_contents=True)
    )
    assert peak <= 2 * said + 20_000


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (MetricRecord, MetricRecord({f"m{n}": n for n in range(20_000)})),
        (MetricRecord, MetricRecord({"m": [n / 7 for n in range(100_000)]})),
        (MetricRecord, MetricRecord({"m": list(range(100_000))})),
        (ConfigRecord, ConfigRecord({"m": [""] * 100_000})),
    ],
    ids=["names", "floats", "integers", "empty texts"],
)
def test_items_of_a_record_count_what_they_take(kind, data):
    content = data.deflate()
    said = read_part(content).size
    assert memory_of(lambda: kind.inflate(content)) <= 2 * said
    with pytest.raises(ValueError, match="takes more than"):
        read_part(content, said - 1)


def test_empty_items_are_counted_and_refused_at_the_limit():
    """They take 30 times their bytes in protobuf's own memory, which is not Python's."""
    data = memoryview(b"\x0a\x00" * 10**5)
    size = protobuf_size(data, ProtoRecordDict.DESCRIPTOR, float("inf"))
    assert size >= 60 * len(data) / 2
    with pytest.raises(ValueError, match="takes more than"):
        protobuf_size(data, ProtoRecordDict.DESCRIPTOR, 10**6)


@given(st.binary(max_size=200))
def test_any_bytes_are_counted_or_refused(data):
    try:
        size = protobuf_size(memoryview(data), ProtoRecordDict.DESCRIPTOR, float("inf"))
    except (ValueError, IndexError, KeyError):
        return
    assert 0 <= size <= (64 + 256) * len(data)


def test_array_and_records_count_what_they_name_as_often():
    zeros = Array(np.zeros(1000, np.float32))
    for names in (1, 10):
        content = RecordDict({"a": ArrayRecord({f"a{n}": zeros for n in range(names)})})
        contents = {key: one.deflate() for key, one in get_all_nested_objects(content).items()}
        size = unfolded(contents, content.object_id)
        assert names * 4128 < size < names * 8000 + 4000
