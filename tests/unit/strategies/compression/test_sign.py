"""Sign compression: signs, zeros, the step, and their bytes."""

import math
import struct

import pytest

from strategies.compression.decoded_update import DecodeError
from strategies.compression.sign import Sign
from tests.support.compression_reference import SMALLEST, float32, generator, layout_of


def encode(values, step=1.0):
    return Sign(step).encode(float32(values), layout_of(len(values)), generator())


def decode(data, size):
    return Sign().decode(data, layout_of(size))


def test_only_the_signs_of_the_values_count():
    update = decode(encode([3e38, -1e-40, 0, -0.0, SMALLEST], 0.5), 5)
    assert update.to_dense().tolist() == [0.5, -0.5, 0, 0, 0.5]


def test_bytes_by_hand():
    # Zeros at 1, 2 and 11 of 12: b = 1; gaps less one are 1, 0, 8.
    values = [1, 0, 0, 1, -1, -1, 1, 1, 1, 1, 1, 0]
    head = struct.pack("<f", 0.25) + b"\x01" + struct.pack("<I", 3)
    bits = int(("0011110100" + "001100000").ljust(24, "0"), 2).to_bytes(3)
    assert encode(values, 0.25) == head + bits


@pytest.mark.parametrize("step", [0, -0.0, -1, math.nan, math.inf])
def test_encoded_step_that_is_not_positive_is_rejected(step):
    data = struct.pack("<f", step) + encode([1, -1])[4:]
    with pytest.raises(DecodeError, match="the step is"):
        decode(data, 2)
