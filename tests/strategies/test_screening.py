"""Every way a reply can be wrong is refused with one line, and the good ones survive it."""

import io
import math
import pickle
import re
import time
import tracemalloc
import warnings

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, MetricRecord, RecordDict
from hypothesis import given, settings
from hypothesis import strategies as st

from strategies.limits import Limits
from strategies.screening import (
    ReplyError,
    check_metrics,
    check_update,
    common_metrics,
    mean_metrics,
    read_arrays,
    screen,
)
from tests.strategies.replies import as_numpy, failed, npy, record, reply, reply_with

MODEL = {
    "weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "bias": np.array([1.0, 2.0], dtype=np.float64),
    "count": np.array(4, dtype=np.int64),
}
EXPECTED = record(MODEL)
WIDE = Limits(max_examples=2**53)
HEADER = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n"
MAX_REASON = 400


def with_payload(data, name="weight", **claims):
    """Return the model's record with one array's bytes (and what the record claims) replaced."""
    arrays = record(MODEL)
    old = arrays[name]
    claimed = {"dtype": old.dtype, "shape": old.shape, "stype": old.stype} | claims
    arrays[name] = Array(data=data, **claimed)
    return arrays


def good_payload(array=MODEL["weight"]):
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def check(reply):
    check_update(reply, EXPECTED, WIDE, EXPECTED)


def check_count(reply):
    check_metrics(reply, WIDE)


def assert_refused(bad, reason, check=check):
    """Between two good replies, the bad one is refused with one short line that says why."""
    first, last = reply(1, MODEL), reply(3, MODEL)
    accepted, rejected = screen([first, bad, last], check)
    assert accepted == [first, last]
    assert list(rejected) == [bad.metadata.src_node_id]
    text = rejected[bad.metadata.src_node_id]
    assert re.search(reason, text), text
    assert len(text.splitlines()) == 1, text
    assert len(text) <= MAX_REASON, f"{len(text)} characters"


def test_good_replies_pass_in_their_order():
    replies = [reply(node, MODEL, num_examples=node) for node in (9, 2, 5)]
    accepted, rejected = screen(replies, check)
    assert accepted == replies
    assert rejected == {}
    for name, array in read_arrays(replies[0], EXPECTED).items():
        np.testing.assert_array_equal(array, MODEL[name], strict=True)


def test_arrays_come_in_the_models_order():
    shuffled = {name: MODEL[name] for name in ("count", "weight", "bias")}
    assert list(read_arrays(reply(1, shuffled), EXPECTED)) == ["weight", "bias", "count"]


@pytest.mark.parametrize("array", [MODEL["weight"], np.ones((2, 3), np.float32)])
def test_fortran_order_is_read_right(array):
    payload = good_payload(np.asfortranarray(array))
    assert b"'fortran_order': True" in payload
    read = read_arrays(reply(1, with_payload(payload)), EXPECTED)
    np.testing.assert_array_equal(read["weight"], array, strict=True)


def test_second_header_version_is_read_too():
    body = MODEL["weight"].tobytes()
    read = read_arrays(reply(1, with_payload(npy(HEADER, body, version=2))), EXPECTED)
    np.testing.assert_array_equal(read["weight"], MODEL["weight"], strict=True)


def test_error_reply_gives_the_last_line_of_its_traceback():
    assert_refused(failed(2), r"^error 0: ZeroDivisionError: division by zero$")


@pytest.mark.parametrize("reason", [None, "", "\n \n"])
def test_error_reply_without_a_reason(reason):
    assert_refused(reply_with(2, Error(3, reason)), r"^error 3: no reason given$")


def test_error_reply_with_an_endless_reason():
    assert_refused(failed(2, "x" * 10**6), r"^error 0: x+\.\.\.$")


@pytest.mark.parametrize("kept", [[], ["metrics"]])
def test_missing_arrays(kept):
    content = RecordDict({"metrics": MetricRecord({"num-examples": 1})})
    if not kept:
        content["arrays"] = ConfigRecord({"weight": b"x"})  # the name is right, the kind is not
    assert_refused(reply_with(2, content), r"no ArrayRecord 'arrays' \(has: .*metrics")


@pytest.mark.parametrize("check", [check, check_count])
def test_missing_metrics(check):
    bad = reply_with(2, RecordDict({"arrays": EXPECTED}))
    assert_refused(bad, r"no MetricRecord 'metrics' \(has: arrays\)", check)


def test_empty_reply():
    assert_refused(reply_with(2, RecordDict()), r"has: nothing")


@pytest.mark.parametrize(
    "names",
    [
        ("weight", "bias"),
        ("weight", "bias", "count", "more"),
        ("weight", "bias", "counter"),
        (),
    ],
)
def test_other_names(names):
    arrays = {name: MODEL.get(name, np.zeros(1)) for name in names}
    assert_refused(reply(2, arrays), "array names differ from the model's: .*")


@pytest.mark.parametrize(
    "name",
    ["extra\nround 9: everything is fine", "extra\r\nx", "x" * 10**6],
    ids=["newline", "crlf", "long"],
)
def test_a_hostile_array_name_stays_in_one_line(name):
    assert_refused(reply(2, MODEL | {name: np.zeros(1)}), "array names differ")


def test_a_hostile_record_name_stays_in_one_line():
    content = RecordDict({"metrics": MetricRecord({"num-examples": 1})})
    content["a\nround 9: everything is fine"] = ConfigRecord()
    assert_refused(reply_with(2, content), "no ArrayRecord")


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((3, 2), np.float32),
        np.zeros(6, np.float32),
        np.zeros((1, 2, 3), np.float32),
        np.zeros((2, 0), np.float32),
        np.float32(1),
    ],
)
def test_other_shape(array):
    assert_refused(reply(2, MODEL | {"weight": array}), r"'weight' is .*expected float32\[2, 3\]")


@pytest.mark.parametrize("dtype", ["float64", "float16", "int32", ">f4", "bool", "S4", "c8"])
def test_other_dtype(dtype):
    bad = MODEL | {"weight": MODEL["weight"].astype(dtype)}
    assert_refused(reply(2, bad), r"'weight' is .*expected float32\[2, 3\]")


def test_what_the_record_claims_of_dtype_and_shape_is_not_believed():
    lie = with_payload(good_payload(np.zeros((9, 9))), dtype="float32", shape=(2, 3))
    assert_refused(reply(2, lie), r"'weight' is float64\[9, 9\], expected float32\[2, 3\]")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["weight", "bias"])
def test_not_finite(name, value):
    poisoned = MODEL[name].copy()
    poisoned.flat[-1] = value
    assert_refused(reply(2, MODEL | {name: poisoned}), f"'{name}' has NaN or infinite")


@pytest.mark.parametrize(
    "value",
    [0, -1, 0.5, -(10**12), 2**53 + 1, 2**63 - 1, 1e300, math.nan, math.inf, -math.inf],
)
@pytest.mark.parametrize("check", [check, check_count])
def test_impossible_number_of_examples(check, value):
    assert_refused(reply(2, MODEL, num_examples=value), "num-examples is", check)


@pytest.mark.parametrize("value", [[], [5], [5.0, 6.0], [1.5] * 10**5])
def test_number_of_examples_is_a_list(value):
    assert_refused(reply(2, MODEL, num_examples=value), "num-examples is .*not a number")


def test_number_of_examples_is_missing():
    content = RecordDict({"arrays": EXPECTED, "metrics": MetricRecord({"train-loss": 1.0})})
    assert_refused(reply_with(2, content), "num-examples is None, not a number")


def test_number_of_examples_is_a_bool():
    """A MetricRecord takes none, but in a simulation it comes unpickled, unchecked."""
    bad = reply(2, MODEL)
    vars(bad.content["metrics"])["_data"]["num-examples"] = True
    assert_refused(bad, "num-examples is True, not a number")


@pytest.mark.parametrize("value", [1, 1.0, 600, 2**53, 10.5])
def test_possible_number_of_examples(value):
    check(reply(2, MODEL, num_examples=value))


@pytest.mark.parametrize("kind", ["update", "metrics"])
def test_more_examples_than_the_limit(kind):
    limits = Limits(max_examples=600)

    def limited(reply):
        if kind == "metrics":
            check_metrics(reply, limits)
        else:
            check_update(reply, EXPECTED, limits, EXPECTED)

    limited(reply(2, MODEL, num_examples=600))
    assert_refused(
        reply(2, MODEL, num_examples=10**12),
        "^num-examples is 1000000000000, max-examples is 600$",
        limited,
    )


@pytest.mark.parametrize("origin", [EXPECTED, None])
def test_an_update_longer_than_the_limit(origin):
    """3-4-12: over the arrays together, of the difference to the model or of what was sent."""
    before = {name: np.zeros_like(array) for name, array in MODEL.items()}
    start = MODEL if origin else before
    sent = {name: array.copy() for name, array in start.items()}
    sent["weight"][1, 2] -= 3
    sent["bias"][0] += 4
    sent["count"] += 12
    good = reply(2, sent)

    def limited(norm):
        return lambda reply: check_update(reply, EXPECTED, Limits(max_update_norm=norm), origin)

    np.testing.assert_array_equal(limited(13.0)(good)["bias"], sent["bias"])
    with pytest.raises(ReplyError, match=r"^the update's norm is 13, max-update-norm is 12\.5$"):
        limited(12.5)(good)


@pytest.mark.filterwarnings("error")
def test_a_norm_beyond_float64_is_above_every_limit():
    for value in (1e308, 1.7e308):  # its square, and its difference to the model's value
        low = record({"w": np.array([-value, 1.0])})
        far = reply(2, {"w": np.array([value, 1.0])})
        with pytest.raises(ReplyError, match="the update's norm is inf"):
            check_update(far, low, Limits(max_update_norm=1e300), low)


def test_too_few_good_replies_are_all_refused():
    replies = [reply(1, MODEL), failed(2), reply(3, MODEL)]
    assert screen(replies, check, at_least=2)[0] == [replies[0], replies[2]]
    accepted, rejected = screen(replies, check, at_least=3)
    assert accepted == []
    too_few = "too few usable replies: 2, min-replies is 3"
    assert rejected[1] == rejected[3] == too_few
    assert "ZeroDivisionError" in rejected[2]
    assert screen([], check, at_least=3) == ([], {})


@pytest.mark.parametrize(
    "shape",
    ["(1000000000000,)", "(1000000, 1000000)", "(4611686018427387904, 4)", f"({10**30},)"],
)
def test_a_header_that_claims_a_huge_shape_costs_nothing(shape):
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n"
    bad = reply(2, with_payload(npy(header, b"\0" * 24)))
    tracemalloc.start()
    started = time.perf_counter()
    try:
        with pytest.raises(ReplyError, match="'weight'"):
            check(bad)
        seconds = time.perf_counter() - started
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert seconds < 0.5
    assert peak < 10**6
    assert_refused(bad, "'weight' is float32")


def test_a_body_larger_than_the_model_is_refused():
    assert_refused(
        reply(2, with_payload(good_payload() + b"\0" * 10**6)), "'weight' holds 1000024 bytes"
    )


def test_every_truncation():
    payload = good_payload()
    for length in range(len(payload)):
        with pytest.raises(ReplyError, match="'weight'"):
            check(reply(2, with_payload(payload[:length])))
    assert_refused(reply(2, with_payload(payload[:-1])), "'weight' holds 23 bytes")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"garbage",
        bytes(range(256)) * 40,
        b"PK\x03\x04" + b"\0" * 200,
        pickle.dumps(MODEL["weight"]),
        npy(HEADER, b"\0" * 24)[:6] + b"\x03\x00" + npy(HEADER, b"\0" * 24)[8:],
        npy("", b"\0" * 24),
        npy("{}\n", b"\0" * 24),
        npy("[1, 2]\n", b"\0" * 24),
        npy("{'descr': 'nonsense', 'fortran_order': False, 'shape': (2, 3), }\n", b"\0" * 24),
        npy("{'descr': '<f4', 'fortran_order': 0, 'shape': (2, 3), }\n", b"\0" * 24),
        npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, -3), }\n", b"\0" * 24),
        npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2.0, 3), }\n", b"\0" * 24),
        npy("__import__('os')._exit(1)\n", b"\0" * 24),
        npy("(" * 9000, b"\0" * 24),
        npy("-" * 9000 + "1", b"\0" * 24),
        npy(" " * 60000, b"\0" * 24),
        b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + HEADER.encode() + b"\0" * 24,
    ],
    ids=lambda data: repr(data[8:28]),
)
def test_garbage(data):
    assert_refused(reply(2, with_payload(data)), "'weight' (has an unreadable header|is )")


class Bomb:
    def __reduce__(self):
        return (pytest.fail, ("a reply was unpickled",))


@pytest.mark.parametrize("shape", [(), (2, 3)])
def test_a_pickled_object_array_is_not_unpickled(shape):
    stream = io.BytesIO()
    bombs = np.empty(shape, dtype=object)
    bombs[...] = Bomb()
    np.save(stream, bombs, allow_pickle=True)
    bad = reply(2, with_payload(stream.getvalue()))
    assert_refused(bad, r"'weight' is object.*expected float32\[2, 3\]")
    header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n"
    hidden = npy(header, pickle.dumps(Bomb()))
    assert_refused(reply(2, with_payload(hidden)), "'weight' holds")


@pytest.mark.parametrize("stype", ["", "torch", "numpy.ndarray ", "evil\nline", "y" * 10**5])
def test_other_serialisation(stype):
    bad = with_payload(good_payload(), stype=stype)
    assert_refused(reply(2, bad), "'weight' is serialised as")


def test_no_node_counts_twice():
    first, second, other = reply(7, MODEL), reply(7, MODEL), reply(8, MODEL)
    accepted, rejected = screen([first, second, other], check)
    assert accepted == [first, other]
    assert list(rejected) == [7]
    assert "second reply" in rejected[7]


def test_a_node_whose_first_reply_was_bad_does_not_get_a_second_try():
    accepted, rejected = screen([failed(7), reply(7, MODEL)], check)
    assert accepted == []
    assert list(rejected) == [7]


def test_only_reply_errors_are_caught():
    """A bug of the checks themselves must not look like a bad client."""

    def broken(reply):
        raise KeyError("bug")

    with pytest.raises(KeyError):
        screen([reply(1, MODEL)], broken)


PAYLOAD = good_payload()
MUTATION = st.one_of(
    st.tuples(st.just("set"), st.integers(0, len(PAYLOAD) - 1), st.integers(0, 255)),
    st.tuples(st.just("cut"), st.integers(0, len(PAYLOAD)), st.integers(0, 8)),
    st.tuples(st.just("add"), st.integers(0, len(PAYLOAD)), st.binary(max_size=8)),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(MUTATION, max_size=3))
def test_mutated_bytes_give_a_good_array_or_a_reply_error(mutations):
    data = bytearray(PAYLOAD)
    for kind, position, value in mutations:
        if kind == "set":
            data[position : position + 1] = bytes([value])
        elif kind == "cut":
            del data[position : position + value]
        else:
            data[position:position] = value
    data = bytes(data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy's about headers written by Python 2
        try:
            array = read_arrays(reply(2, with_payload(data)), EXPECTED)["weight"]
        except ReplyError as error:
            refusal = str(error)
        else:
            refusal = ""
        if refusal:
            assert len(refusal.splitlines()) == 1
            assert len(refusal) <= MAX_REASON
            assert data != PAYLOAD, "the untouched payload is good"
            return
        assert (array.dtype, array.shape) == (np.float32, (2, 3))
        assert np.isfinite(array).all()
        # NumPy's own reader sees the same in bytes that were let through.
        same = np.load(io.BytesIO(data), allow_pickle=False)
    np.testing.assert_array_equal(array, same, strict=True)


def test_mean_metrics_by_hand():
    replies = [
        reply(1, MODEL, num_examples=1, loss=1.0, accuracy=0.0, own=3.0),
        reply(2, MODEL, num_examples=3, loss=5.0, accuracy=1.0),
    ]
    assert dict(mean_metrics(replies)) == {"loss": 4.0, "accuracy": 0.75}


def test_mean_metrics_leaves_out_lists_and_nan():
    replies = [
        reply(1, MODEL, loss=1.0, curve=[1.0, 2.0], odd=math.nan),
        reply(2, MODEL, loss=3, curve=[1.0, 2.0], odd=1.0),
    ]
    assert dict(mean_metrics(replies)) == {"loss": 2.0}
    assert dict(mean_metrics([])) == {}


def test_mean_of_finite_metrics_is_finite():
    replies = [reply(node, MODEL, num_examples=600, loss=1e308) for node in (1, 2)]
    assert mean_metrics(replies)["loss"] == pytest.approx(1e308)


def test_a_metric_too_large_for_a_float_does_not_end_the_run():
    """A MetricRecord takes any Python int; in a simulation it is not cut to 64 bits."""
    replies = [reply(1, MODEL, loss=1.0, huge=10**400), reply(2, MODEL, loss=3.0, huge=1)]
    assert common_metrics(replies[0]) == {"num-examples": 1.0, "loss": 1.0}
    assert dict(mean_metrics(replies)) == {"loss": 2.0}


def test_the_models_record_is_not_changed_by_screening():
    before = as_numpy(EXPECTED)
    screen([reply(1, MODEL), reply(2, {"other": np.ones(1)})], check)
    assert isinstance(EXPECTED, ArrayRecord)
    for name, array in as_numpy(EXPECTED).items():
        np.testing.assert_array_equal(array, before[name], strict=True)
