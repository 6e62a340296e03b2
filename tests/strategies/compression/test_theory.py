"""What messages should cost, against the papers' figures."""

import math

import pytest

from strategies.compression.theory import (
    dense_bits,
    position_bits,
    sign_bits,
    sparse_bits,
    ternary_bits,
)

SIZE = 865_482  # VGG11*


def entropy(p):
    """Return the bits an entry of the shortest code of a random mask with a share p of ones."""
    return -p * math.log2(p) - (1 - p) * math.log2(1 - p)


@pytest.mark.parametrize(
    ("p", "bits", "compression"),
    [(1 / 25, 6.085, 112.9), (1 / 100, 8.108, 351.3), (1 / 400, 10.114, 1151.7)],
)
def test_stc_with_the_formulas_floor(p, bits, compression):
    assert position_bits(p) == pytest.approx(bits, abs=5e-4)
    assert dense_bits(SIZE) / ternary_bits(SIZE, p) == pytest.approx(compression, abs=0.05)


@pytest.mark.parametrize(
    ("p", "bits", "compression", "ratio"),
    [
        (1 / 25, 0.242292, 113.4, 5.393),
        (1 / 100, 0.080793, 352.4, 4.414),
        (1 / 400, 0.025212, 1154.7, 3.797),
    ],
)
def test_the_least_there_can_be(p, bits, compression, ratio):
    assert entropy(p) == pytest.approx(bits, abs=5e-7)
    assert 32 / (entropy(p) + p) == pytest.approx(compression, abs=0.05)
    assert (entropy(p) + 32 * p) / (entropy(p) + p) == pytest.approx(ratio, abs=5e-4)


@pytest.mark.parametrize("p", [1 / 25, 1 / 100, 1 / 400])
def test_the_code_is_within_one_percent_of_the_entropy(p):
    assert entropy(p) < p * position_bits(p) < 1.01 * entropy(p)


def test_the_other_forms():
    assert dense_bits(10) == 320
    assert sign_bits(10) == 10
    assert sparse_bits(1000, 0.01) == pytest.approx(10 * (8.108 + 32), rel=1e-4)
    assert dense_bits(SIZE) / sign_bits(SIZE) == 32


def test_one_entry_in_a_million_and_all():
    assert position_bits(1.0) == 1  # b = 0: one closing zero each
    assert math.log2(1e6) < position_bits(1e-6) < math.log2(1e6) + 2
