"""Positions as bits, against a code written and read bit by bit, and the papers' figures."""

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from strategies.compression import golomb
from strategies.compression.bits import check_end, pack, unpack
from strategies.compression.golomb import decode_positions, encode_positions, most_bits, parameter
from strategies.compression.theory import position_bits
from strategies.compression.update import CodecError
from tests.strategies.compression.reference import UNHURRIED, Bits, position_code

VGG11S = 865_482
PAPERS = {1 / 25: (4, 6.085), 1 / 100: (6, 8.108), 1 / 400: (8, 10.114)}

supports = st.integers(1, 400).flatmap(
    lambda size: st.tuples(
        st.just(size), st.sets(st.integers(0, size - 1)).map(sorted), st.integers(0, 31)
    )
)


def coded(positions, b):
    bits = encode_positions(np.array(positions, np.int64), b)
    assert bits.dtype == np.uint8
    return bits


@pytest.mark.parametrize("density", PAPERS)
def test_the_papers_parameters(density):
    assert parameter(density) == PAPERS[density][0]
    assert position_bits(density) == pytest.approx(PAPERS[density][1], abs=5e-4)


@UNHURRIED
@given(st.floats(1e-6, 0.9999))
def test_parameter_is_the_papers_formula(p):
    phi = (math.sqrt(5) + 1) / 2
    exact = 1 + math.log2(math.log(phi - 1) / math.log(1 - p))
    if abs(exact - round(exact)) > 1e-6:  # else rounding decides
        assert parameter(p) == max(math.floor(exact), 0)


@pytest.mark.parametrize("p", [1e-5, 1 / 400, 1 / 100, 1 / 25, 0.2, 0.38, 0.5, 0.7])
def test_no_other_parameter_is_better(p):
    def expected_bits(b):
        return b + 1 / (1 - (1 - p) ** 2**b)

    best = min(expected_bits(b) for b in range(25))
    assert expected_bits(parameter(p)) == pytest.approx(best, rel=1e-12)


@pytest.mark.parametrize(("p", "b"), [(0, 0), (1, 0), (0.99, 0), (1e-12, 31), (1e-300, 31)])
def test_parameter_at_the_ends(p, b):
    assert parameter(p) == b


def test_a_code_by_hand():
    # Gaps less one: 2, 0, 9 with M = 4: quotients 0, 0, 2; remainders 2, 0, 1.
    assert "".join(map(str, coded([2, 3, 13], 2))) == "00110" + "10" + "00" + "01"


@UNHURRIED
@given(supports)
@example((1, [], 0))
@example((1, [0], 31))
@example((400, list(range(400)), 0))
def test_round_trip_and_reference(drawn):
    size, positions, b = drawn
    bits = coded(positions, b)
    assert "".join(map(str, bits)) == position_code(positions, b)
    assert len(bits) <= most_bits(len(positions), b, size)
    assert Bits(pack(bits)).positions(len(positions), b) == positions

    following = np.array([1, 0, 1], np.uint8)
    found, used = decode_positions(np.concatenate([bits, following]), len(positions), b, size)
    assert found.dtype == np.int64
    assert found.tolist() == positions
    assert used == len(bits)


@UNHURRIED
@given(supports)
def test_positions_beyond_the_vector_are_refused(drawn):
    _, positions, b = drawn
    if positions:
        with pytest.raises(CodecError):
            decode_positions(coded(positions, b), len(positions), b, positions[-1])


@UNHURRIED
@given(supports, st.data())
def test_bits_that_end_early_are_refused(drawn, data):
    size, positions, b = drawn
    bits = coded(positions, b)
    if len(bits):
        left = data.draw(st.integers(0, len(bits) - 1))
        with pytest.raises(CodecError):
            decode_positions(bits[:left], len(positions), b, size)


@UNHURRIED
@given(st.lists(st.integers(0, 1)), st.integers(0, 50), st.integers(0, 31), st.integers(0, 200))
def test_whatever_bits_decode_to_is_what_they_say(drawn, count, b, size):
    bits = np.array(drawn, np.uint8)
    try:
        found, used = decode_positions(bits, count, b, size)
    except CodecError:
        return
    assert len(found) == count
    assert position_code(found.tolist(), b) == "".join(map(str, drawn[:used]))
    assert (np.diff(found) > 0).all()
    assert all(0 <= position < size for position in found)


@pytest.mark.parametrize("p", PAPERS)
def test_size_of_random_supports_is_as_expected(p):
    rng = np.random.default_rng(7)
    for _ in range(3):
        positions = np.flatnonzero(rng.random(VGG11S) < p)
        bits = encode_positions(positions, parameter(p))
        assert len(bits) / len(positions) == pytest.approx(PAPERS[p][1], rel=0.01)
        assert len(bits) == pytest.approx(VGG11S * p * position_bits(p), rel=0.05)


def test_the_largest_gaps():
    for size in (2**31, 2**33):
        positions = np.array([0, size - 1])
        bits = encode_positions(positions, golomb.MAX_PARAMETER)
        found, _ = decode_positions(bits, 2, golomb.MAX_PARAMETER, size)
        np.testing.assert_array_equal(found, positions)


@UNHURRIED
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
def test_bits_left_over_or_missing_are_refused(data, used):
    with pytest.raises(CodecError, match="bits"):
        check_end(unpack(data, 16), used)


def test_more_bytes_than_can_be_are_not_unpacked():
    with pytest.raises(CodecError, match="3 bytes where 16 bits"):
        unpack(bytes(3), 16)
