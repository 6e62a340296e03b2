"""Every way in which a reply can be invalid: it is rejected with one line, the others are used."""

import io
import math
import pickle
import re
import warnings

import numpy as np
import pytest
from flwr.app import Array, ConfigRecord, Error, MetricRecord, RecordDict
from hypothesis import given, settings
from hypothesis import strategies as st

from strategies.compression.testing import cost
from strategies.rounds.exchange import Exchange
from strategies.rounds.model import Model, change_norm
from strategies.rounds.reply_errors import (
    MAX_REASON,
    DivergedReplyError,
    ReplyError,
    error_reason,
    printable,
)
from strategies.rounds.reply_validation import Reply, check_norm, read_report
from strategies.rounds.values import ClientReport, ReplyBounds
from tests.support.replies import failed, npy, record, reply, reply_with

pytestmark = pytest.mark.usefixtures("server_identity")

MODEL = {
    "weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "bias": np.array([1.0, 2.0], dtype=np.float64),
    "count": np.array(4, dtype=np.int64),
}
EXPECTED = record(MODEL)
GLOBAL = Model.read(EXPECTED, ("count",))
WIDE = ReplyBounds(max_examples=2**53)
HEADER = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n"


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


def read_arrays(message):
    found = Reply(message, GLOBAL, WIDE)
    arrays = GLOBAL.layout.unflatten(found.vector) | found.buffers
    return {name: arrays[name] for name in GLOBAL.order}


def check(message):
    read_arrays(message)
    return Reply(message, GLOBAL, WIDE).report


def check_report(message):
    return read_report(message, WIDE, "num-examples")


def assert_rejected(bad, reason, check=check):
    """Between two valid replies, the invalid one is rejected with one short line that says why."""
    exchange = Exchange([], check)
    exchange.take_all([reply(1, MODEL), bad, reply(3, MODEL)])
    assert [report.node_id for report in exchange.reports] == [1, 3]
    assert list(exchange.rejected) == [bad.metadata.src_node_id]
    text = str(exchange.rejected[bad.metadata.src_node_id])
    assert re.search(reason, text), text
    assert len(text.splitlines()) == 1, text
    assert len(text) <= 200, f"{len(text)} characters"


def test_arrays_are_in_the_order_of_the_model():
    shuffled = {name: MODEL[name] for name in ("count", "weight", "bias")}
    assert list(read_arrays(reply(1, shuffled))) == ["weight", "bias", "count"]


@pytest.mark.parametrize("array", [MODEL["weight"], np.ones((2, 3), np.float32)])
def test_fortran_ordered_array_is_read(array):
    payload = good_payload(np.asfortranarray(array))
    assert b"'fortran_order': True" in payload
    read = read_arrays(reply(1, with_payload(payload)))
    np.testing.assert_array_equal(read["weight"], array, strict=True)


@pytest.mark.parametrize("others", [{}, {"arrays": ConfigRecord({"weight": b"x"})}])
def test_reply_without_arrays_is_rejected(others):
    content = RecordDict({"metrics": MetricRecord({"num-examples": 1}), **others})
    assert_rejected(reply_with(2, content), "no ArrayRecord 'arrays'")


@pytest.mark.parametrize("check", [check, check_report])
def test_reply_without_metrics_is_rejected(check):
    bad = reply_with(2, RecordDict({"arrays": EXPECTED}))
    assert_rejected(bad, "no MetricRecord 'metrics'", check)


NAMES = [
    ("weight", "bias"), ("weight", "bias", "counter"), (*MODEL, "x" * 10**6),
    (*MODEL, "extra\nround 9: everything is fine"), (*MODEL, "extra\r\nx"),
]  # fmt: skip
OTHERS = [np.zeros((3, 2), np.float32), np.zeros((2, 0), np.float32), np.float32(1)]
OTHERS += [MODEL["weight"].astype(dtype) for dtype in ["f8", "f2", "i4", ">f4", "bool", "S4", "c8"]]
HEADERS = [
    b"", b"garbage", pickle.dumps(MODEL["weight"]), npy("{}\n", b"\0" * 24),
    npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, -3), }\n", b"\0" * 24),
    npy("__import__('os')._exit(1)\n", b"\0" * 24), npy("(" * 9000, b"\0" * 24),
    npy("-" * 9000 + "1", b"\0" * 24),
    b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + HEADER.encode() + b"\0" * 24,
]  # fmt: skip
STYPES = ["", "torch", "numpy.ndarray ", "evil\nline", "y" * 10**5]
CLAIMED = with_payload(good_payload(np.zeros((9, 9))), dtype="float32", shape=(2, 3))
BAD_ARRAYS = [
    *(
        ({name: MODEL.get(name, np.zeros(1)) for name in names}, "array names differ from the mod")
        for names in NAMES
    ),
    *((MODEL | {"weight": array}, r"'weight' is .*expected float32\[2, 3\]") for array in OTHERS),
    *((with_payload(data), "'weight' (has an unreadable header|is )") for data in HEADERS),
    *((with_payload(good_payload(), stype=stype), "'weight' is serialized as") for stype in STYPES),
    (CLAIMED, r"'weight' is float64\[9, 9\], expected float32\[2, 3\]"),
]


@pytest.mark.parametrize(("arrays", "reason"), BAD_ARRAYS, ids=range(len(BAD_ARRAYS)))
def test_arrays_that_are_not_the_models_are_rejected(arrays, reason):
    """Other names, shapes, dtypes, headers and kinds, in the bytes or as the record claims."""
    assert_rejected(reply(2, arrays), reason)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["weight", "bias"])
def test_array_with_nan_or_infinity_is_rejected_as_diverged(name, value):
    poisoned = MODEL[name].copy()
    poisoned.flat[-1] = value
    bad = reply(2, MODEL | {name: poisoned})
    assert_rejected(bad, f"'{name}' has NaN or infinite")
    with pytest.raises(DivergedReplyError):
        check(bad)


@pytest.mark.parametrize(
    "value", [0, -1, 0.5, -(10**12), 2**53 + 1, 2**63 - 1, 1e300, math.nan, math.inf, -math.inf]
)
@pytest.mark.parametrize("check", [check, check_report])
def test_impossible_number_of_examples_is_rejected(check, value):
    assert_rejected(reply(2, MODEL, num_examples=value), "num-examples is", check)


def test_bool_or_none_as_number_of_examples_is_rejected():
    """A MetricRecord refuses both, but a simulation unpickles records without that check."""
    for value in (True, None):
        bad = reply(2, MODEL)
        vars(bad.content["metrics"])["_data"]["num-examples"] = value
        assert_rejected(bad, f"num-examples is a {type(value).__name__}, not a number")


@pytest.mark.filterwarnings("error")
def test_norm_that_overflows_is_above_every_bound():
    for value in (1e308, 1.7e308):  # its square, and its difference to the model's value
        norm = change_norm(np.array([value, 1.0]), np.array([-value, 1.0]))
        with pytest.raises(ReplyError, match="the update's norm is inf"):
            check_norm(norm, {}, {}, ReplyBounds(max_update_norm=1e300))


@pytest.mark.parametrize(
    "shape", ["(1000000000000,)", "(1000000, 1000000)", "(4611686018427387904, 4)", f"({10**30},)"]
)
def test_header_that_claims_a_huge_shape_allocates_nothing(shape):
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n"
    bad = reply(2, with_payload(npy(header, b"\0" * 24)))
    _, peak, _ = cost(lambda _: assert_rejected(bad, "'weight' is float32"), b"")
    assert peak < 10**6


def test_truncated_array_is_rejected():
    payload = good_payload()
    for length in range(len(payload)):
        with pytest.raises(ReplyError, match="'weight'"):
            check(reply(2, with_payload(payload[:length])))
    assert_rejected(reply(2, with_payload(payload[:-1])), "'weight' holds 23 bytes")


class FailsWhenUnpickled:
    def __reduce__(self):
        return (pytest.fail, ("a reply was unpickled",))


@pytest.mark.parametrize("shape", [(), (2, 3)])
def test_object_array_is_rejected_without_unpickling(shape):
    stream = io.BytesIO()
    objects = np.empty(shape, dtype=object)
    objects[...] = FailsWhenUnpickled()
    np.save(stream, objects, allow_pickle=True)
    bad = reply(2, with_payload(stream.getvalue()))
    assert_rejected(bad, r"'weight' is object.*expected float32\[2, 3\]")
    hidden = npy(HEADER, pickle.dumps(FailsWhenUnpickled()))
    assert_rejected(reply(2, with_payload(hidden)), "'weight' holds")


PAYLOAD = good_payload()
MUTATION = st.one_of(
    st.tuples(st.just("set"), st.integers(0, len(PAYLOAD) - 1), st.integers(0, 255)),
    st.tuples(st.just("cut"), st.integers(0, len(PAYLOAD)), st.integers(0, 8)),
    st.tuples(st.just("add"), st.integers(0, len(PAYLOAD)), st.binary(max_size=8)),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(MUTATION, max_size=3))
def test_mutated_bytes_give_a_valid_array_or_a_reply_error(mutations):
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
            array = read_arrays(reply(2, with_payload(data)))["weight"]
        except ReplyError as error:
            rejection = str(error)
        else:
            rejection = ""
        if rejection:
            assert len(rejection.splitlines()) == 1
            assert len(rejection) <= MAX_REASON
            assert data != PAYLOAD, "the payload without a mutation is valid"
            return
        assert (array.dtype, array.shape) == (np.float32, (2, 3))
        assert np.isfinite(array).all()
        # NumPy's own reader sees the same in bytes that were let through.
        same = np.load(io.BytesIO(data), allow_pickle=False)
    np.testing.assert_array_equal(array, same, strict=True)


def test_metrics_are_the_finite_numbers_except_the_number_of_examples():
    metrics = {"loss": 3, "curve": [1.0, 2.0], "odd": math.nan, "far": -math.inf, "accuracy": 0.5}
    report = check_report(reply(4, MODEL, num_examples=600, **metrics))
    assert report == ClientReport(4, 600.0, {"loss": 3.0, "accuracy": 0.5}, ("odd", "far"))
    assert isinstance(report.metrics["loss"], float)
    assert isinstance(report.num_examples, float)


def test_characters_that_are_not_printable_are_replaced():
    assert printable("a\x1b[31m\x00é\u200b \U0001f600") == "a?[31m?é? \U0001f600"
    assert str(ReplyError("\x1b]0;title\x07\nnext")) == "?]0;title? next"
    assert_rejected(failed(2, "Traceback\nValueError: \x1b[2Jgone"), r"^ValueError: \?\[2J")


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("Traceback\n  ...\nValueError: shape\n\n", "ValueError: shape"),
        (
            'Traceback\n  File "/a/flwr/app.py", line 7, in f\n    g()\n'
            '  File "/home/me/fedavgm.py", line 20, in g\n    1 / 0\nZeroDivisionError: by zero',
            "ZeroDivisionError: by zero (/home/me/fedavgm.py, line 20)",
        ),
        (  # raised in a library that a user's mod called
            'File "/app/fedavg_app/client/mods.py", line 7, in f\nFile "/home/me/mod.py", line 3\n'
            'File "/env/lib/python3.11/json/decoder.py", line 355\nValueError: no JSON',
            "ValueError: no JSON (/home/me/mod.py, line 3)",
        ),
        (  # a SuperNode's
            "<class 'fedavg_app.client.mods.ClientFailedError'>:<'ValueError: no JSON "
            "(/home/me/mod.py, line 3)'>",
            "ValueError: no JSON (/home/me/mod.py, line 3)",
        ),
        (  # of Flower's simulation
            'File "/env/lib/python3.11/site-packages/flwr/ray_actor.py", line 65, in run\n'
            "flwr.clientapp.client_app.ClientAppException: \nException ClientAppException "
            "occurred. Message: ValueError: no JSON (/home/me/mod.py, line 3)'>",
            "ValueError: no JSON (/home/me/mod.py, line 3)",
        ),
        (
            f'File "/{"x" * 150}/fedavgm.py", line 20\nKeyError: {"k" * 300}',
            f"KeyError: {'k' * 95}... (...{'x' * 66}/fedavgm.py, line 20)",
        ),
        ("", "error 3: no reason given"),
        (None, "error 3: no reason given"),
    ],
)
def test_error_reason_is_the_last_line_and_the_place(reason, expected):
    assert error_reason(Error(3, reason)) == expected


def test_very_long_error_reason_is_read_quickly():
    """Matching the pattern of a client's line takes quadratic time: an hour for this text."""
    reason = "ClientFailedError: (a, line 1" * 100_000
    assert error_reason(Error(3, reason)).endswith("...")
