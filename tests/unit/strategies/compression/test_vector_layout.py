"""A model's arrays as one flat vector, and back."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from strategies.compression.vector_layout import Layout
from tests.support.compression_reference import no_deadline

shapes = st.lists(st.lists(st.integers(0, 4), max_size=3).map(tuple), min_size=1, max_size=5)


def model(shapes, dtype=np.float32):
    rng = np.random.default_rng(0)
    return {
        f"{i}.weight": np.asarray(rng.normal(size=shape), dtype) for i, shape in enumerate(shapes)
    }


@no_deadline
@given(shapes)
def test_unflatten_restores_the_flattened_arrays(shapes):
    arrays = model(shapes)
    layout = Layout.of(arrays)
    assert layout.shapes == tuple(shapes)
    assert layout.sizes == tuple(map(math.prod, shapes))
    assert layout.size == sum(layout.sizes)

    vector = layout.flatten(arrays)
    assert (vector.dtype, vector.shape) == (np.float32, (layout.size,))
    assert vector.tolist() == [x for array in arrays.values() for x in array.ravel().tolist()]

    back = layout.unflatten(vector)
    assert list(back) == list(arrays)
    for name, array in back.items():
        np.testing.assert_array_equal(array, arrays[name], strict=True)
