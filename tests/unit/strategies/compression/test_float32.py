"""Updates without compression."""

import struct

import numpy as np
from hypothesis import example, given

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


def test_expected_bits_are_32_an_entry():
    assert Float32().expected_bits(layout_of(10)) == 320
