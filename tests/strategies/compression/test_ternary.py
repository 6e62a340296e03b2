"""Sparse ternary compression against its algorithm, and its messages against the papers' sizes."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies.compression.ternary import Ternary, ternarise
from strategies.compression.theory import position_bits
from strategies.compression.topk import keep_count
from tests.strategies.compression import reference
from tests.strategies.compression.reference import (
    LARGEST,
    SMALLEST,
    SPARSITY,
    UNHURRIED,
    float32,
    in_blocks,
)

VGG11S = 865_482


def algorithm_1(values, sparsity):
    """Return the paper's Algorithm 1, step by step, in plain Python."""
    k = max(math.ceil(len(values) * sparsity), 1)
    v = sorted((abs(x) for x in values), reverse=True)[k - 1]
    masked = [x if abs(x) >= v else 0.0 for x in values]
    mu = math.fsum(abs(x) for x in masked) / k
    return [mu * ((x > 0) - (x < 0)) for x in masked]


def test_algorithm_1_by_hand():
    values = [0.5, -2, 0, 1, -4, 3, -0.25, 0.125]
    # k = 3, v = 2: -2, -4 and 3 are left, mu = (2 + 4 + 3) / 3.
    assert algorithm_1(values, 3 / 8) == [0, -3, 0, 0, -3, 3, 0, 0]
    update = ternarise(float32(values), 3 / 8, (8,))
    assert update.to_dense().tolist() == [0, -3, 0, 0, -3, 3, 0, 0]
    assert update.positions.tolist() == [1, 4, 5]
    assert update.negative.tolist() == [True, True, False]
    assert update.magnitudes.tolist() == [3]


@UNHURRIED
@given(
    st.lists(st.floats(2**-20, 2**20, width=32), min_size=1, max_size=50, unique=True),
    st.randoms(use_true_random=False),
    SPARSITY,
)
def test_algorithm_1_where_nothing_ties(magnitudes, random, sparsity):
    values = [random.choice([-1, 1]) * x for x in magnitudes]
    found = ternarise(float32(values), sparsity, (len(values),)).to_dense()
    np.testing.assert_allclose(found, float32(algorithm_1(values, sparsity)), rtol=1.2e-7)


@UNHURRIED
@given(in_blocks(), SPARSITY)
def test_every_block_keeps_its_largest_at_their_mean_magnitude(drawn, sparsity):
    values, blocks = drawn
    update = ternarise(values, sparsity, blocks)
    dense = update.to_dense()
    assert (update.blocks, update.size, len(dense)) == (blocks, len(values), len(values))
    assert update.magnitudes.shape == (len(blocks),)
    start = 0
    for size, magnitude in zip(blocks, update.magnitudes, strict=True):
        part = values[start : start + size]
        kept = reference.top_k(part, keep_count(size, sparsity))
        assert np.flatnonzero(dense[start : start + size]).tolist() == kept
        np.testing.assert_array_equal(
            dense[start : start + size][kept], np.sign(part[kept]) * magnitude
        )
        mean = math.fsum(abs(float(part[i])) for i in kept) / len(kept) if kept else 0
        assert float(magnitude) == pytest.approx(mean, rel=6e-8, abs=SMALLEST / 2)
        start += size


def test_zeros_stay_zeros_where_the_kth_magnitude_is_zero():
    # The paper's formula divides by k = 4; the authors' code makes the zeros -mu.
    update = ternarise(float32([0, 6, 0, 0, -2, 0, -0.0, 0]), 0.5, (8,))
    assert update.to_dense().tolist() == [0, 4, 0, 0, -4, 0, 0, 0]


def test_a_block_of_zeros_has_magnitude_zero():
    update = ternarise(float32([0, 0, 0, -7]), 0.5, (3, 1))
    assert update.magnitudes.tolist() == [0, 7]
    assert update.positions.tolist() == [3]


@pytest.mark.parametrize("value", [SMALLEST, LARGEST, -LARGEST])
def test_the_mean_neither_vanishes_nor_overflows(value):
    update = ternarise(np.full(1000, value, np.float32), 1, (1000,))
    assert (update.to_dense() == np.float32(value)).all()


@pytest.mark.parametrize(("p", "compression"), [(1 / 25, 111), (1 / 100, 345), (1 / 400, 1130)])
def test_a_whole_message_costs_what_the_paper_says(p, compression):
    values = np.random.default_rng(5).standard_normal(VGG11S, dtype=np.float32)
    update = ternarise(values, p, (VGG11S,))
    data = update.encode()
    bits_per_entry = 8 * len(data) / len(update.positions)
    assert position_bits(p) + 1 == pytest.approx(
        {25: 7.085, 100: 9.108, 400: 11.114}[1 / p], abs=5e-4
    )
    assert bits_per_entry <= 1.02 * (position_bits(p) + 1)
    assert 4 * VGG11S / len(data) >= compression
    assert reference.decode_ternary(data, (VGG11S,)) == update.to_dense().tolist()
    assert Ternary.decode(data, (VGG11S,)).to_dense().tobytes() == update.to_dense().tobytes()
