import io
import time
import tracemalloc

import numpy as np
import pytest
from flwr.app import Array, MetricRecord
from hypothesis import given, settings
from hypothesis import strategies as st

from strategies.screening import (
    ReplyError,
    check_update,
    error_reason,
    mean_metrics,
    num_examples,
    read_arrays,
    screen,
)
from tests.strategies.replies import failed, model, record, reply

EXPECTED = model()


def with_data(data, stype="numpy.ndarray"):
    arrays = model(1.0)
    arrays["w"] = Array("float32", (2, 3), stype, data)
    return arrays


def npy(header, body=b""):
    text = header.encode().ljust(118) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + body


def pickled():
    buffer = io.BytesIO()
    np.save(buffer, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    return buffer.getvalue()


GOOD = model(1.0)["w"].data
HUGE = npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,), }", b"1234")
LONG = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }" + "#" * 60_000
BAD_ARRAYS = {
    "missing record": (False, "no ArrayRecord 'arrays'"),
    "missing array": (record(w=np.zeros((2, 3), np.float32)), "array names differ"),
    "extra array": (record(**{n: np.zeros(1) for n in "wbx"}), "array names differ"),
    "empty": (record(), "array names differ"),
    "shape": (record(w=np.zeros((3, 2), np.float32), b=np.zeros(3, np.float32)), "expected"),
    "dtype": (record(w=np.zeros((2, 3)), b=np.zeros(3, np.float32)), "is float64[2, 3]"),
    "nan": (model(np.nan), "NaN or infinite"),
    "inf": (model(-np.inf), "NaN or infinite"),
    "truncated": (with_data(GOOD[:-1]), "bytes, not those of"),
    "too long": (with_data(GOOD + b"x"), "bytes, not those of"),
    "no bytes": (with_data(b""), "unreadable header"),
    "garbage": (with_data(bytes(range(256))), "unreadable header"),
    "pickle": (with_data(pickled()), "object[1]"),
    "claims a terabyte": (with_data(HUGE), "float32[1000000000000]"),
    "endless header": (with_data(npy(LONG)), "unreadable header"),
    "negative shape": (with_data(HUGE.replace(b"1000000000000", b"-1           ")), "float32[-1]"),
    "other codec": (with_data(GOOD, stype="zip"), "serialised as 'zip'"),
}
BAD_METRICS = {
    "missing record": (False, "no MetricRecord 'metrics'"),
    "missing": ({"loss": 1.0}, "num-examples is None"),
    "zero": ({"num-examples": 0}, "at least 1"),
    "negative": ({"num-examples": -600}, "at least 1"),
    "nan": ({"num-examples": float("nan")}, "at least 1"),
    "inf": ({"num-examples": float("inf")}, "at most 2^53"),
    "overflowing": ({"num-examples": 1e308}, "at most 2^53"),
    "list": ({"num-examples": [10]}, "not a number"),
}


@pytest.mark.parametrize("kind", BAD_ARRAYS)
def test_bad_arrays_are_refused_quickly_and_cheaply(kind):
    arrays, fragment = BAD_ARRAYS[kind]
    bad, good = reply(1, arrays=arrays), reply(2)
    tracemalloc.start()
    started = time.perf_counter()
    accepted, rejected = screen([bad, good], lambda r: check_update(r, EXPECTED))
    seconds, (_, peak) = time.perf_counter() - started, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert accepted == [good]
    assert set(rejected) == {1}
    assert fragment in rejected[1]
    assert "\n" not in rejected[1]
    assert len(rejected[1]) < 300
    assert seconds < 1
    assert peak < 5_000_000


@pytest.mark.parametrize("kind", BAD_METRICS)
def test_bad_metrics_are_refused(kind):
    metrics, fragment = BAD_METRICS[kind]
    accepted, rejected = screen(
        [reply(1, metrics=metrics), reply(2)], lambda r: check_update(r, EXPECTED)
    )
    assert [r.metadata.src_node_id for r in accepted] == [2]
    assert fragment in rejected[1]


def test_an_error_reply_gives_the_last_line_of_its_reason():
    reason = "Traceback (most recent call last):\n  File x\nKeyError: 'partition-id'\n\n"
    _, rejected = screen([failed(5, reason)], lambda r: None)
    assert rejected == {5: f"error {failed(5, '').error.code}: KeyError: 'partition-id'"}
    assert error_reason(failed(5, "").error).endswith("no reason given")
    assert len(error_reason(failed(5, "x" * 10_000).error)) < 300


def test_a_second_reply_from_one_node_does_not_count():
    first, second = reply(1), reply(1, arrays=model(100.0))
    accepted, rejected = screen([first, second], lambda r: check_update(r, EXPECTED))
    assert accepted == [first]
    assert rejected == {1: "a second reply from the same node"}


def test_fortran_order_is_read_right():
    array = np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3))
    arrays = record(w=array, b=np.zeros(3, np.float32))
    assert np.array_equal(read_arrays(reply(1, arrays=arrays), EXPECTED)["w"], array)


def test_arrays_come_in_the_models_order():
    arrays = record(b=np.ones(3, np.float32), w=np.zeros((2, 3), np.float32))
    assert list(read_arrays(reply(1, arrays=arrays), EXPECTED)) == ["w", "b"]


@settings(deadline=None, max_examples=500)
@given(
    st.lists(st.tuples(st.integers(0, len(GOOD) - 1), st.integers(0, 255)), max_size=8),
    st.integers(0, len(GOOD)),
)
def test_mutated_bytes_end_in_an_array_or_one_named_error(changes, length):
    data = bytearray(GOOD)
    for position, value in changes:
        data[position] = value
    arrays = with_data(bytes(data[: length or None]))
    try:
        found = read_arrays(reply(1, arrays=arrays), EXPECTED)["w"]
    except ReplyError:
        return
    assert (found.shape, found.dtype) == ((2, 3), np.float32)
    assert np.isfinite(found).all()


def test_mean_metrics_are_weighted_and_only_what_all_replies_share():
    replies = [
        reply(1, metrics={"num-examples": 1, "loss": 1.0, "only-here": 5.0, "bad": float("nan")}),
        reply(2, metrics={"num-examples": 3, "loss": 5.0, "list": [1.0], "bad": 1.0}),
    ]
    assert dict(mean_metrics(replies)) == {"loss": 4.0}
    assert mean_metrics([]) == MetricRecord()


def test_num_examples_may_be_a_float():
    assert num_examples(reply(1, metrics={"num-examples": 12.0})) == 12.0
