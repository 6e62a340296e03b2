"""Small numbers in bytes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies.compression.bit_packing import pack, unpack
from strategies.compression.decoded_update import DecodeError
from tests.support.compression_reference import no_deadline

numbers_and_width = st.integers(1, 8).flatmap(
    lambda width: st.tuples(st.lists(st.integers(0, 2**width - 1)), st.just(width))
)


@no_deadline
@given(numbers_and_width)
def test_numbers_fill_bytes_from_the_most_significant_bit(drawn):
    numbers, width = drawn
    data = pack(np.array(numbers, np.uint8), width)
    bits = "".join(format(number, f"0{width}b") for number in numbers)
    assert data == bytes(int(bits[at : at + 8].ljust(8, "0"), 2) for at in range(0, len(bits), 8))
    assert unpack(data, len(numbers), width).tolist() == numbers


@pytest.mark.parametrize(("data", "count"), [(b"\0\1", 5), (b"\0\x08", 4), (b"", 1), (b"\0", 0)])
def test_bytes_left_over_or_missing_are_rejected(data, count):
    with pytest.raises(DecodeError, match=r"numbers|not zero"):
        unpack(data, count, 3)
