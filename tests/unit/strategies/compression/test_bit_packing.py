"""Bits in bytes."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies.compression.bit_packing import check_end, pack, unpack
from strategies.compression.decoded_update import DecodeError
from tests.support.compression_reference import no_deadline


@no_deadline
@given(st.lists(st.integers(0, 1), max_size=70))
def test_bits_fill_bytes_from_the_most_significant(drawn):
    bits = np.array(drawn, np.uint8)
    data = pack(bits[:3], bits[3:])
    assert "".join(format(byte, "08b") for byte in data) == "".join(map(str, drawn)).ljust(
        8 * len(data), "0"
    )
    assert len(data) == math.ceil(len(drawn) / 8)
    unpacked = unpack(data, len(drawn))
    check_end(unpacked, len(drawn))
    np.testing.assert_array_equal(unpacked[: len(drawn)], bits)


@pytest.mark.parametrize(
    ("data", "used"), [(b"\x80", 0), (b"\x01", 7), (b"\0", 9), (b"\0\0", 8), (b"\0", 0)]
)
def test_bits_left_over_or_missing_are_rejected(data, used):
    with pytest.raises(DecodeError, match="bits"):
        check_end(unpack(data, 16), used)


def test_more_bytes_than_the_bound_are_not_unpacked():
    with pytest.raises(DecodeError, match="3 bytes where 16 bits"):
        unpack(bytes(3), 16)
