"""Reading and writing of Flower's arrays, against Flower's own."""

import numpy as np
import pytest
from flwr.app import Array
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from strategies.rounds.flower_arrays import from_array, to_array

DTYPES = st.sampled_from([np.float32, np.float64, np.int64, np.uint8, np.bool_, np.float16])
ARRAYS = DTYPES.flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0))
)


@settings(max_examples=200, deadline=None)
@given(ARRAYS)
def test_to_array_gives_the_bytes_that_flower_gives(array):
    ours, flowers = to_array(array), Array(array)
    assert ours == to_array(np.array(array, order="F")) == flowers
    assert np.array_equal(from_array(flowers), array, equal_nan=array.dtype.kind == "f")
    assert from_array(flowers).dtype == array.dtype


@pytest.mark.parametrize("dtype", [b"|O8", b"|V0"])
def test_array_whose_dtype_is_not_numeric_is_not_read(dtype):
    """Other unreadable arrays are in test_reply_validation.py, which rejects any other dtype."""
    data = to_array(np.ones(3, np.float32)).data.replace(b"<f4", dtype)
    with pytest.raises(ValueError, match=r"dtype .*, which is not numeric"):
        from_array(Array("float32", (3,), "numpy.ndarray", data))
