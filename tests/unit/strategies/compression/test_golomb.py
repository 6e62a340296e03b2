"""Golomb code of positions, against one written and read bit by bit, and the paper's figures."""

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from strategies.compression import golomb
from strategies.compression.bit_packing import pack
from strategies.compression.decoded_update import DecodeError
from strategies.compression.golomb import (
    decode_positions,
    encode_positions,
    max_bits,
    parameter,
    position_bits,
)
from tests.support.compression_reference import VGG11_SIZE, BitReader, no_deadline, position_code

# Sattler et al. 2020, section V: sparsity -> (b*, bits of a position).
PAPER = {1 / 25: (4, 6.085), 1 / 100: (6, 8.108), 1 / 400: (8, 10.114)}

position_sets = st.integers(1, 400).flatmap(
    lambda size: st.tuples(
        st.just(size), st.sets(st.integers(0, size - 1)).map(sorted), st.integers(0, 31)
    )
)


def encode(positions, b):
    bits = encode_positions(np.array(positions, np.int64), b)
    assert bits.dtype == np.uint8
    return bits


def entropy(p):
    """Return the bits an entry of the shortest code of a random mask with a share p of ones."""
    return -p * math.log2(p) - (1 - p) * math.log2(1 - p)


@pytest.mark.parametrize("density", PAPER)
def test_parameter_and_position_bits_are_the_papers(density):
    assert parameter(density) == PAPER[density][0]
    assert position_bits(density) == pytest.approx(PAPER[density][1], abs=5e-4)


@no_deadline
@given(st.floats(1e-6, 0.9999))
def test_parameter_is_the_papers_formula(p):
    phi = (math.sqrt(5) + 1) / 2
    exact = 1 + math.log2(math.log(phi - 1) / math.log(1 - p))
    if abs(exact - round(exact)) > 1e-6:  # else rounding decides
        assert parameter(p) == max(math.floor(exact), 0)


@pytest.mark.parametrize("p", [1e-5, 1 / 400, 1 / 100, 1 / 25, 0.2, 0.38, 0.5, 0.7])
def test_parameter_minimises_the_expected_bits(p):
    def expected_bits(b):
        return b + 1 / (1 - (1 - p) ** 2**b)

    best = min(expected_bits(b) for b in range(25))
    assert expected_bits(parameter(p)) == pytest.approx(best, rel=1e-12)


@pytest.mark.parametrize(("p", "b"), [(0, 0), (1, 0), (0.99, 0), (1e-12, 31), (1e-300, 31)])
def test_parameter_is_bounded_for_extreme_densities(p, b):
    assert parameter(p) == b


def test_position_bits_for_extreme_densities():
    assert position_bits(1.0) == 1  # b = 0: one closing zero each
    assert math.log2(1e6) < position_bits(1e-6) < math.log2(1e6) + 2


@pytest.mark.parametrize("p", PAPER)
def test_position_bits_are_within_one_percent_of_the_entropy(p):
    assert entropy(p) < p * position_bits(p) < 1.01 * entropy(p)


@pytest.mark.parametrize(
    ("p", "bits", "compression", "ratio"),
    [
        (1 / 25, 0.242292, 113.4, 5.393),
        (1 / 100, 0.080793, 352.4, 4.414),
        (1 / 400, 0.025212, 1154.7, 3.797),
    ],
)
def test_entropy_bounds_are_the_papers(p, bits, compression, ratio):
    """The bounds that the code is compared to, so that a wrong `entropy` is noticed."""
    assert entropy(p) == pytest.approx(bits, abs=5e-7)
    assert 32 / (entropy(p) + p) == pytest.approx(compression, abs=0.05)
    assert (entropy(p) + 32 * p) / (entropy(p) + p) == pytest.approx(ratio, abs=5e-4)


def test_code_by_hand():
    # Gaps less one: 2, 0, 9 with M = 4: quotients 0, 0, 2; remainders 2, 0, 1.
    assert "".join(map(str, encode([2, 3, 13], 2))) == "00110" + "10" + "00" + "01"


@no_deadline
@given(position_sets)
@example((1, [], 0))
@example((1, [0], 31))
@example((400, list(range(400)), 0))
def test_code_equals_the_reference_and_decodes_to_the_positions(drawn):
    size, positions, b = drawn
    bits = encode(positions, b)
    assert "".join(map(str, bits)) == position_code(positions, b)
    assert len(bits) <= max_bits(len(positions), b, size)
    assert BitReader(pack(bits)).positions(len(positions), b) == positions

    following = np.array([1, 0, 1], np.uint8)
    found, used = decode_positions(np.concatenate([bits, following]), len(positions), b, size)
    assert found.dtype == np.int64
    assert found.tolist() == positions
    assert used == len(bits)


@no_deadline
@given(position_sets)
def test_positions_beyond_the_vector_are_rejected(drawn):
    _, positions, b = drawn
    if positions:
        with pytest.raises(DecodeError):
            decode_positions(encode(positions, b), len(positions), b, positions[-1])


@no_deadline
@given(position_sets, st.data())
def test_truncated_bits_are_rejected(drawn, data):
    size, positions, b = drawn
    bits = encode(positions, b)
    if len(bits):
        left = data.draw(st.integers(0, len(bits) - 1))
        with pytest.raises(DecodeError):
            decode_positions(bits[:left], len(positions), b, size)


@no_deadline
@given(st.lists(st.integers(0, 1)), st.integers(0, 50), st.integers(0, 31), st.integers(0, 200))
def test_arbitrary_bits_decode_to_the_positions_that_they_encode(drawn, count, b, size):
    bits = np.array(drawn, np.uint8)
    try:
        found, used = decode_positions(bits, count, b, size)
    except DecodeError:
        return
    assert len(found) == count
    assert position_code(found.tolist(), b) == "".join(map(str, drawn[:used]))
    assert (np.diff(found) > 0).all()
    assert all(0 <= position < size for position in found)


@pytest.mark.parametrize("p", PAPER)
def test_size_of_random_positions_is_as_expected(p):
    rng = np.random.default_rng(7)
    for _ in range(3):
        positions = np.flatnonzero(rng.random(VGG11_SIZE) < p)
        bits = encode_positions(positions, parameter(p))
        assert len(bits) / len(positions) == pytest.approx(PAPER[p][1], rel=0.01)
        assert len(bits) == pytest.approx(VGG11_SIZE * p * position_bits(p), rel=0.05)


def test_gaps_of_more_than_31_bits_are_encoded():
    for size in (2**31, 2**33):
        positions = np.array([0, size - 1])
        bits = encode_positions(positions, golomb.MAX_PARAMETER)
        found, _ = decode_positions(bits, 2, golomb.MAX_PARAMETER, size)
        np.testing.assert_array_equal(found, positions)
