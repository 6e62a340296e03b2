"""Selection of the largest entries, against sorting in plain Python."""

import math
from fractions import Fraction
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies.compression import largest_entries
from strategies.compression.largest_entries import is_largest, keep_count
from tests.support import compression_reference as reference
from tests.support.compression_reference import float32, no_deadline, vectors


def largest(values, count):
    return np.flatnonzero(is_largest(values, count))


def sizes_partitioned(values, count):
    """Return the positions, and from how many entries each partition took the largest."""
    with mock.patch.object(
        largest_entries, "_largest", wraps=largest_entries._largest
    ) as partition:
        found = largest(values, count)
    return found, [len(call.args[0]) for call in partition.call_args_list]


def by_sorting(values, count):
    """Return the reference for vectors that are too long for the one in plain Python."""
    magnitudes = np.abs(values.astype(np.float64))
    chosen = np.sort(np.argsort(-magnitudes, kind="stable")[:count])
    return chosen[magnitudes[chosen] > 0]


def assert_positions(found, expected):
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, expected)


@no_deadline
@given(vectors(min_size=1, max_size=200), st.integers(1, 20), st.data())
def test_largest_with_a_sampled_threshold_equals_sorting(values, sample, data):
    count = data.draw(st.integers(0, len(values)))
    with mock.patch.multiple(largest_entries, MIN_SIZE_FOR_SAMPLE=1, SAMPLE_SIZE=sample):
        assert_positions(largest(values, count), reference.largest(values, count))


def long_vectors(size):
    rng = np.random.default_rng(size)
    normal = rng.standard_normal(size, dtype=np.float32)
    sums = np.zeros(size, np.float32)
    for client in range(10):  # as on the server: a mean of ternary updates, mostly zeros
        sums[rng.integers(size, size=size // 400)] += float32((-1) ** client * 0.01)
    misleading = [float32(rng.uniform(1, 2, size)) for _ in range(2)]
    for vector, factor in zip(misleading, (100, 0.01), strict=True):
        vector[:: size // largest_entries.SAMPLE_SIZE | 1] *= factor  # what is sampled
    return [
        *misleading,
        normal,
        np.sort(normal),
        np.tile(normal[:64], size // 64),  # the rows of a matrix
        rng.standard_cauchy(size).astype(np.float32),
        sums,
        rng.choice(float32([-1, 1]), size),
        rng.choice(float32([-1, 1, 1.5]), size, p=[0.5, 0.499, 0.001]),
        np.zeros(size, np.float32),
    ]


@pytest.mark.parametrize(
    "size",
    [largest_entries.MIN_SIZE_FOR_SAMPLE - 64, largest_entries.MIN_SIZE_FOR_SAMPLE, 3 * 2**17],
)
def test_largest_of_long_vectors_equals_sorting(size):
    for values in long_vectors(size):
        for count in (1, size // 400, size // 25, size // 2, size - 1, size):
            assert_positions(largest(values, count), by_sorting(values, count))


def test_sampled_threshold_leaves_few_entries_to_partition():
    values = np.random.default_rng(1).standard_normal(2**18, dtype=np.float32)
    found, partitioned = sizes_partitioned(values, 655)
    assert_positions(found, by_sorting(values, 655))
    assert len(partitioned) == 1
    assert 655 <= partitioned[0] < 4 * 655
    short, partitioned = sizes_partitioned(values[:10_000], 25)
    assert partitioned == [10_000]
    assert_positions(short, by_sorting(values[:10_000], 25))


@pytest.mark.parametrize(
    ("size", "sparsity", "count"),
    [
        *((100, hundredths / 100, hundredths) for hundredths in (7, 14, 28, 55, 56)),
        (101, 0.07, 8), (1000, 1 / 400, 3), (401, 1 / 400, 2), (865_482, 1 / 400, 2164),
        (1, 1e-9, 1), (10, 1.0, 10), (0, 0.5, 0),
        (10**7, 1.0000005e-7, 1),  # a product above an integer by less than 10^-6
        (10**7, 1.000002e-7, 2),  # and by more
    ],
)  # fmt: skip
def test_keep_count_by_hand(size, sparsity, count):
    """100 times 0.07, 0.14 and so on is above the integer by rounding."""
    assert keep_count(size, sparsity) == count


@no_deadline
@given(st.integers(1, 10_000_000), st.integers(1, 10_000))
def test_keep_count_of_four_decimals_and_of_one_in_q_is_exact(size, number):
    for share in (Fraction(number, 10_000), Fraction(1, number)):
        assert keep_count(size, float(share)) == max(math.ceil(size * share), 1)
