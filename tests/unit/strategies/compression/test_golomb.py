"""Golomb code of positions, against code read and written bit by bit, and the paper's figures."""

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from strategies.compression import golomb
from strategies.compression.decoded_update import DecodeError
from strategies.compression.golomb import decode, parameter
from tests.support.compression_reference import BitReader, no_deadline, position_code

position_sets = st.integers(1, 400).flatmap(
    lambda size: st.tuples(
        st.just(size), st.sets(st.integers(0, size - 1)).map(sorted), st.integers(0, 31)
    )
)


def encode(positions, b, signs=()):
    return golomb.encode(np.array(positions, np.int64), b, np.array(signs, np.bool_))


@no_deadline
@given(st.floats(1e-6, 0.9999))
def test_parameter_is_the_papers_formula(p):
    phi = (math.sqrt(5) + 1) / 2
    exact = 1 + math.log2(math.log(phi - 1) / math.log(1 - p))
    if abs(exact - round(exact)) > 1e-6:  # else rounding decides
        assert parameter(p) == max(math.floor(exact), 0)


@pytest.mark.parametrize(("p", "b"), [(0, 0), (1, 0), (0.99, 0), (1e-12, 31), (1e-300, 31)])
def test_parameter_is_bounded_for_extreme_densities(p, b):
    assert parameter(p) == b


@no_deadline
@given(position_sets, st.lists(st.booleans()))
@example((1, [], 0), [])
@example((1, [0], 31), [True])
@example((400, list(range(400)), 0), [])
def test_code_equals_the_reference_and_decodes_to_the_positions(drawn, signs):
    size, positions, b = drawn
    data = encode(positions, b, signs)
    expected = position_code(positions, b) + "".join("01"[sign] for sign in signs)
    assert BitReader(data).bits == expected.ljust(8 * len(data), "0")
    assert len(data) == math.ceil(len(expected) / 8)
    assert BitReader(data).positions(len(positions), b) == positions
    found, following = decode(data, b, len(positions), size, len(signs))
    assert found.dtype == np.int64
    assert found.tolist() == positions
    assert following.tolist() == signs


@pytest.mark.parametrize(("data", "signs"), [(b"\x01", 7), (b"\0", 9), (b"\0\0", 8), (b"\0", 0)])
def test_bits_left_over_or_missing_are_rejected(data, signs):
    with pytest.raises(DecodeError, match="bits"):
        decode(data, 0, 0, 8, signs)


@pytest.mark.parametrize(("b", "count"), [(32, 2), (255, 2), (0, 9), (0, 2**32 - 1), (31, 2**31)])
def test_numbers_that_fit_no_vector_are_rejected(b, count):
    with pytest.raises(DecodeError, match=f"b = {b} and k = {count} do not fit 8 entries"):
        decode(bytes(8), b, count, 8)


@pytest.mark.parametrize("size", [2**31, 2**33])
def test_gaps_of_more_than_31_bits_are_encoded(size):
    positions, b = [0, size - 1], golomb.MAX_PARAMETER
    assert decode(encode(positions, b), b, 2, size)[0].tolist() == positions
