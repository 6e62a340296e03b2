"""Our reading and writing of Flower's arrays, against Flower's own."""

import numpy as np
import pytest
from flwr.app import Array
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from strategies.arrays import from_array, from_record, to_array, to_record

DTYPES = st.sampled_from([np.float32, np.float64, np.int64, np.uint8, np.bool_, np.float16])
ARRAYS = DTYPES.flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0))
)


@settings(max_examples=200, deadline=None)
@given(ARRAYS)
def test_the_bytes_are_flowers(array):
    ours, flowers = to_array(array), Array(array)
    assert ours == flowers
    assert np.array_equal(from_array(flowers), array, equal_nan=array.dtype.kind == "f")
    assert from_array(flowers).dtype == array.dtype


def test_columns_first_is_read_and_written():
    array = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    assert np.array_equal(from_array(Array(array)), array)
    assert np.array_equal(to_array(array).numpy(), array)


def test_values_stay_where_they_are_and_cannot_be_written_to():
    record = to_record({"w": np.ones(3, np.float32)})
    values = from_record(record)["w"]
    assert not values.flags.writeable
    assert values.__array_interface__["data"][0] == (
        np.frombuffer(record["w"].data, np.uint8).__array_interface__["data"][0] + 128
    )


GOOD = to_array(np.ones(3, np.float32))


@pytest.mark.parametrize(
    ("array", "reason"),
    [
        (Array("float32", (3,), "torch.tensor", GOOD.data), "'torch.tensor', not 'numpy.ndarray'"),
        (Array("float32", (3,), "numpy.ndarray", b""), "unreadable header"),
        (Array("float32", (3,), "numpy.ndarray", GOOD.data[:40]), "unreadable header"),
        (Array("float32", (3,), "numpy.ndarray", b"x" + GOOD.data[1:]), "unreadable header"),
        (Array("float32", (3,), "numpy.ndarray", GOOD.data[:-1]), "holds 11 bytes"),
        (Array("float32", (3,), "numpy.ndarray", GOOD.data + b"a"), "holds 13 bytes"),
        (
            Array("float32", (3,), "numpy.ndarray", GOOD.data.replace(b"<f4", b"|O8")),
            "dtype object, which holds no numbers",
        ),
        (
            Array("float32", (3,), "numpy.ndarray", GOOD.data[:6] + b"\x02\x00" + b"\xff" * 90),
            "unreadable header",
        ),
    ],
)
def test_what_cannot_be_read_is_named(array, reason):
    with pytest.raises(ValueError, match=reason):
        from_array(array)
