"""Which entries are kept, against sorting them in plain Python."""

import math
from fractions import Fraction
from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from strategies.compression import topk
from strategies.compression.topk import check_sparsity, keep_count, top_k, top_k_of_blocks
from tests.strategies.compression import reference
from tests.strategies.compression.reference import (
    SMALLEST,
    SPARSITY,
    UNHURRIED,
    float32,
    in_blocks,
    vectors,
)


def sizes_partitioned(values, count):
    """Return the positions, and from how many entries each partition took the largest."""
    with mock.patch.object(topk, "_largest", wraps=topk._largest) as largest:
        found = top_k(values, count)
    return found, [len(call.args[0]) for call in largest.call_args_list]


def by_sorting(values, count):
    """Return the reference for vectors too long for the plain one."""
    magnitudes = np.abs(values.astype(np.float64))
    chosen = np.sort(np.argsort(-magnitudes, kind="stable")[:count])
    return chosen[magnitudes[chosen] > 0]


def assert_positions(found, expected):
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, expected)


@UNHURRIED
@given(vectors(), st.data())
@example(float32([]), None)
def test_equals_sorting(values, data):
    for count in {0, min(1, len(values)), len(values)}:
        assert_positions(top_k(values, count), reference.top_k(values, count))
    count = data.draw(st.integers(0, len(values))) if data else 0
    assert_positions(top_k(values, count), reference.top_k(values, count))


@UNHURRIED
@given(vectors(least=1, most=200), st.integers(1, 20), st.data())
def test_equals_sorting_where_a_sample_narrows_the_search(values, sample, data):
    count = data.draw(st.integers(0, len(values)))
    with mock.patch.multiple(topk, SAMPLED_FROM=1, SAMPLE=sample):
        assert_positions(top_k(values, count), reference.top_k(values, count))


@UNHURRIED
@given(st.lists(st.sampled_from([1.0, -1.0, 2.0])).map(float32), st.data())
def test_keeps_exactly_k_of_ties_the_first_of_them(values, data):
    count = data.draw(st.integers(0, len(values)))
    found = top_k(values, count)
    assert len(found) == count
    twos = np.flatnonzero(np.abs(values) == 2)[:count]
    ones = np.flatnonzero(np.abs(values) == 1)[: count - len(twos)]
    assert_positions(found, np.sort(np.concatenate([twos, ones])))


def test_the_first_of_equal_magnitudes_whatever_their_signs():
    assert_positions(top_k(float32([1, -3, 2, -2, 2, 0]), 3), [1, 2, 3])


def test_zeros_are_never_kept():
    assert_positions(top_k(float32([0, -0.0, 5, 0, -1e-30]), 4), [2, 4])
    assert_positions(top_k(np.zeros(7, np.float32), 3), [])


def test_denormals_are_no_zeros_and_have_an_order():
    values = float32([SMALLEST, 0, -3 * SMALLEST, 2 * SMALLEST, -0.0])
    assert_positions(top_k(values, 2), [2, 3])
    assert_positions(top_k(values, 5), [0, 2, 3])


def test_the_vector_stays_as_it_is():
    values = np.random.default_rng(0).standard_normal(200_000, dtype=np.float32)
    before = values.copy()
    top_k(values, 500)
    np.testing.assert_array_equal(values, before)


def long_vectors(size):
    rng = np.random.default_rng(size)
    normal = rng.standard_normal(size, dtype=np.float32)
    sums = np.zeros(size, np.float32)
    for client in range(10):  # what a server has: a mean of ternary updates, mostly zeros
        sums[rng.integers(size, size=size // 400)] += float32((-1) ** client * 0.01)
    return [
        normal,
        np.sort(normal),
        np.tile(normal[:64], size // 64),  # the rows of a matrix
        rng.standard_cauchy(size).astype(np.float32),
        sums,
        rng.choice(float32([-1, 1]), size),
        rng.choice(float32([-1, 1, 1.5]), size, p=[0.5, 0.499, 0.001]),
        np.zeros(size, np.float32),
    ]


@pytest.mark.parametrize("size", [topk.SAMPLED_FROM - 64, topk.SAMPLED_FROM, 3 * 2**17])
def test_equals_sorting_of_long_vectors(size):
    for values in long_vectors(size):
        for count in (1, size // 400, size // 25, size // 2, size - 1, size):
            assert_positions(top_k(values, count), by_sorting(values, count))


def test_a_sample_spares_most_of_the_partition():
    values = np.random.default_rng(1).standard_normal(2**18, dtype=np.float32)
    found, partitioned = sizes_partitioned(values, 655)
    assert_positions(found, by_sorting(values, 655))
    assert len(partitioned) == 1
    assert 655 <= partitioned[0] < 4 * 655
    short, partitioned = sizes_partitioned(values[:10_000], 25)
    assert partitioned == [10_000]
    assert_positions(short, by_sorting(values[:10_000], 25))


def test_a_sample_of_zeros_leaves_the_entries_that_are_none():
    values = np.zeros(2**18, np.float32)
    values[1 : 100 * 17 : 17] = np.arange(100) + 1
    for count in (50, 100, 655):
        found, partitioned = sizes_partitioned(values, count)
        assert partitioned == [100]
        assert_positions(found, by_sorting(values, count))


@pytest.mark.parametrize("sampled", ["too large", "too small"])
def test_a_sample_that_misleads_costs_time_only(sampled):
    size, count = 2**18, 1000
    stride = size // topk.SAMPLE | 1
    values = np.random.default_rng(2).uniform(1, 2, size).astype(np.float32)
    values[::stride] *= 100 if sampled == "too large" else 0.01
    found, partitioned = sizes_partitioned(values, count)
    assert partitioned == [size]  # fell back to all
    assert_positions(found, by_sorting(values, count))


@UNHURRIED
@given(in_blocks(), SPARSITY)
def test_blocks_equal_separate_calls(drawn, sparsity):
    values, blocks = drawn
    found = top_k_of_blocks(values, sparsity, blocks)
    assert len(found) == len(blocks)
    start = 0
    for positions, size in zip(found, blocks, strict=True):
        count = keep_count(size, sparsity)
        expected = reference.top_k(values[start : start + size], count)
        assert_positions(positions, [start + position for position in expected])
        start += size


@pytest.mark.parametrize(
    ("size", "sparsity", "count"),
    [
        (100, 0.07, 7),  # 100 * 0.07 is 7.000000000000001
        (100, 0.29, 29),
        (1000, 1 / 400, 3),
        (400, 1 / 400, 1),
        (399, 1 / 400, 1),
        (401, 1 / 400, 2),
        (1, 1e-9, 1),
        (10, 1.0, 10),
        (0, 0.5, 0),
        (865_482, 1 / 400, 2164),
    ],
)
def test_keep_count(size, sparsity, count):
    assert keep_count(size, sparsity) == count


@UNHURRIED
@given(st.integers(1, 10_000_000), st.integers(1, 10_000))
def test_keep_count_of_decimal_sparsities_is_exact(size, ten_thousandths):
    exact = math.ceil(size * Fraction(ten_thousandths, 10_000))
    assert keep_count(size, ten_thousandths / 10_000) == max(exact, 1)


@UNHURRIED
@given(st.integers(1, 10_000_000), st.integers(1, 10_000))
def test_keep_count_of_one_in_q_is_exact(size, q):
    assert keep_count(size, 1 / q) == max(math.ceil(Fraction(size, q)), 1)


@pytest.mark.parametrize("sparsity", [1, 0.5, 1e-9])
def test_sparsities(sparsity):
    assert check_sparsity("p", sparsity) == sparsity
    assert isinstance(check_sparsity("p", sparsity), float)


@pytest.mark.parametrize("sparsity", [0, -0.1, 1.5, math.nan, math.inf, True, "0.1", None])
def test_other_sparsities_are_refused(sparsity):
    with pytest.raises(ValueError, match="sparsity-up = "):
        check_sparsity("sparsity-up", sparsity)
