"""Reading and writing of Flower's arrays, against Flower's own."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from strategies.flower_arrays import (
    array_record,
    find_record,
    from_array,
    from_record,
    get_record,
    raw_array,
    read_header,
    read_values,
    to_array,
    to_record,
)

DTYPES = st.sampled_from([np.float32, np.float64, np.int64, np.uint8, np.bool_, np.float16])
ARRAYS = DTYPES.flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0))
)


@settings(max_examples=200, deadline=None)
@given(ARRAYS)
def test_to_array_gives_the_bytes_that_flower_gives(array):
    ours, flowers = to_array(array), Array(array)
    assert ours == flowers
    assert np.array_equal(from_array(flowers), array, equal_nan=array.dtype.kind == "f")
    assert from_array(flowers).dtype == array.dtype


def test_fortran_order_is_read_and_written():
    array = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    assert np.array_equal(from_array(Array(array)), array)
    assert np.array_equal(to_array(array).numpy(), array)


def test_header_states_shape_order_and_dtype():
    header = read_header(Array(np.asfortranarray(np.zeros((2, 3), np.float32))))
    assert (header.shape, header.fortran_order, header.dtype) == ((2, 3), True, np.float32)
    header = read_header(Array(np.zeros((), np.int64)))
    assert (header.shape, header.fortran_order, header.dtype) == ((), False, np.int64)
    assert header.end == 128


def test_values_are_a_read_only_view_of_the_arrays_bytes():
    record = to_record({"w": np.ones(3, np.float32)})
    values = from_record(record)["w"]
    assert not values.flags.writeable
    assert values.__array_interface__["data"][0] == (
        np.frombuffer(record["w"].data, np.uint8).__array_interface__["data"][0] + 128
    )


def test_records_keep_names_and_order():
    arrays = {"b": np.ones((2, 2), np.float32), "a": np.array(3)}
    record = to_record(arrays)
    assert record == ArrayRecord({name: Array(array) for name, array in arrays.items()})
    assert list(record) == list(from_record(record)) == ["b", "a"]
    again = array_record(dict(record))
    assert again == record
    assert again is not record


GOOD = to_array(np.ones(3, np.float32))


def float32_array(data, stype="numpy.ndarray"):
    return Array("float32", (3,), stype, data)


@pytest.mark.parametrize(
    ("array", "reason"),
    [
        (float32_array(GOOD.data, "torch.tensor"), "'torch.tensor', not 'numpy.ndarray'"),
        (float32_array(b""), "unreadable header"),
        (float32_array(GOOD.data[:40]), "unreadable header"),
        (float32_array(b"x" + GOOD.data[1:]), "unreadable header"),
        (float32_array(GOOD.data[:-1]), "holds 11 bytes"),
        (float32_array(GOOD.data + b"a"), "holds 13 bytes"),
        (float32_array(GOOD.data.replace(b"<f4", b"|O8")), "dtype object, which is not numeric"),
        (float32_array(GOOD.data.replace(b"<f4", b"|V0")), "dtype .*, which is not numeric"),
        (float32_array(GOOD.data[:6] + b"\x02\x00" + b"\xff" * 90), "unreadable header"),
    ],
    ids=[
        "serialization", "empty", "truncated header", "magic", "short", "long", "object",
        "no size", "header length",
    ],
)  # fmt: skip
def test_unreadable_array_raises_value_error(array, reason):
    with pytest.raises(ValueError, match=reason):
        from_array(array)
    with pytest.raises(ValueError, match=reason):
        from_record(ArrayRecord({"w": array}))


def test_header_is_read_without_the_values():
    truncated = float32_array(GOOD.data[:-1])
    header = read_header(truncated)
    assert header.shape == (3,)
    with pytest.raises(ValueError, match="holds 11 bytes"):
        read_values(truncated, header)


@pytest.mark.parametrize("data", [b"", b"\0\xffab"])
def test_raw_bytes_are_stored_without_a_header(data):
    array = raw_array(data)
    assert (array.dtype, array.shape) == ("uint8", (len(data),))
    assert (array.stype, array.data) == ("fedavg_app.bytes", data)


def test_record_is_found_by_name_and_kind():
    metrics, config = MetricRecord({"loss": 1.0}), ConfigRecord({"seed": 1})
    content = RecordDict({"metrics": metrics, "config": config})
    assert find_record(content, "metrics", MetricRecord) is metrics
    assert get_record(content, "config", ConfigRecord) is config
    for name, kind in (("metrics", ConfigRecord), ("arrays", ArrayRecord)):
        assert find_record(content, name, kind) is None
        with pytest.raises(KeyError, match=f"no {kind.__name__} '{name}'"):
            get_record(content, name, kind)
