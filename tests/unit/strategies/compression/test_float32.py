"""Updates without compression."""

import math
import struct

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from strategies.compression.decoded_update import DecodeError
from strategies.compression.float32 import Float32
from tests.support.compression_reference import (
    SMALLEST,
    float32,
    generator,
    layout_of,
    no_deadline,
    vectors,
)


def encode(values):
    return Float32().encode(values, layout_of(len(values)), generator())


@no_deadline
@given(vectors())
@example(float32([-0.0, SMALLEST]))
def test_bytes_are_the_values_to_the_last_bit(values):
    data = encode(values)
    assert list(struct.unpack(f"<{len(values)}f", data)) == values.tolist()
    decoded = Float32().decode(data, layout_of(len(values))).to_dense()
    assert decoded.dtype == np.float32
    assert decoded.tobytes() == values.tobytes()


@no_deadline
@given(vectors(min_size=1), st.data())
def test_truncated_or_extended_bytes_are_rejected(values, data):
    encoded, layout = encode(values), layout_of(len(values))
    left = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(DecodeError):
        Float32().decode(encoded[:left], layout)
    with pytest.raises(DecodeError):
        Float32().decode(encoded + data.draw(st.binary(min_size=1, max_size=9)), layout)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_value_that_is_not_finite_is_rejected(value):
    with pytest.raises(DecodeError, match="a value is NaN or infinite"):
        Float32().decode(struct.pack("<ff", 1, value), layout_of(2))


def test_expected_bits_are_32_an_entry():
    assert Float32().expected_bits(10) == 320
