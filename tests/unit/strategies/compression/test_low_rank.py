"""Low-rank factors of each client's update."""

import math

import numpy as np
import pytest

from strategies.compression.decoded_update import DecodeError
from strategies.compression.low_rank import LowRank, factors
from strategies.compression.vector_layout import Layout
from tests.support.compression_reference import LARGEST, generator

LAYOUT = Layout(("weight", "bias", "kernel"), ((40, 30), (40,), (8, 3, 5, 5)))
MATRIX = Layout(("weight",), ((40, 30),))


def matrix_of_rank(rank, shape=(40, 30)):
    rng = generator(rank)
    made = rng.standard_normal((shape[0], rank)) @ rng.standard_normal((rank, shape[1]))
    return made.astype(np.float32)


def decoded(compressor, vector, layout=MATRIX, seed=0):
    data = compressor.encode(vector, layout, generator(seed))
    return compressor.decode(data, layout).to_dense()


def relative_error(found, matrix):
    difference = found.astype(np.float64) - matrix.reshape(-1)
    return np.linalg.norm(difference) / np.linalg.norm(matrix.astype(np.float64))


def test_bytes_are_the_factors_of_matrices_and_the_entries_of_other_arrays():
    vector = generator(1).standard_normal(LAYOUT.size, dtype=np.float32)
    numbers = np.frombuffer(LowRank(2).encode(vector, LAYOUT, generator()), "<f4")
    assert len(numbers) == 2 * (40 + 30) + 40 + 2 * (8 + 75)
    left, right = numbers[:80].reshape(40, 2), numbers[80:140].reshape(30, 2)
    np.testing.assert_allclose(left.T @ left, np.eye(2), atol=1e-6)
    matrix = vector[:1200].reshape(40, 30)
    np.testing.assert_allclose(right, matrix.T @ left, atol=1e-5)
    assert np.array_equal(numbers[140:180], vector[1200:1240])


@pytest.mark.parametrize(
    ("shape", "rank", "factored"),
    [
        ((40, 30), 17, True),  # 17 * 70 = 1190 of 1200
        ((40, 30), 18, False),
        ((4, 4), 2, False),  # 16 of 16
        ((1, 100), 1, False),
        ((100,), 1, False),
        ((10, 5, 2), 4, True),  # 4 * 20 of 100
        ((10, 5, 2), 5, False),
        ((), 1, False),
        ((0, 4), 1, False),
        ((4, 0), 1, False),
    ],
)
def test_matrix_is_factored_where_that_takes_fewer_numbers(shape, rank, factored):
    layout = Layout(("array",), (shape,))
    vector = generator(1).standard_normal(layout.size, dtype=np.float32)
    compressor = LowRank(rank)
    data = compressor.encode(vector, layout, generator())
    assert (len(data) < 4 * layout.size) == factored
    assert 8 * len(data) == compressor.expected_bits(layout)
    if not factored:
        assert data == vector.tobytes()
        assert np.array_equal(compressor.decode(data, layout).to_dense(), vector)


@pytest.mark.parametrize("rank", [1, 2, 5])
def test_matrix_of_that_rank_comes_back(rank):
    matrix = matrix_of_rank(rank)
    assert relative_error(decoded(LowRank(rank), matrix.reshape(-1)), matrix) < 1e-6


@pytest.mark.parametrize("shape", [(30, 30), (200, 20), (20, 200)])
def test_error_falls_with_iterations_to_that_of_the_best_approximation(shape):
    """Eckart and Young: the singular values that are left out."""
    matrix = generator(4).standard_normal(shape).astype(np.float32)
    layout = Layout(("weight",), (shape,))
    values = np.linalg.svd(matrix.astype(np.float64), compute_uv=False)
    best = np.linalg.norm(values[3:]) / np.linalg.norm(values)
    errors = [
        relative_error(decoded(LowRank(3, iterations), matrix.reshape(-1), layout), matrix)
        for iterations in (1, 2, 4, 300)
    ]
    assert errors == sorted(errors, reverse=True)
    assert best * 1.01 < errors[0] < 1
    assert errors[-1] == pytest.approx(best, rel=1e-4)


def test_columns_beyond_the_matrix_rank_are_zero():
    matrix = np.outer(np.arange(40.0), np.arange(30.0))
    left, right = factors(matrix, generator().standard_normal((30, 3)), 1)
    for factor in (left, right):
        assert (np.linalg.norm(factor, axis=0) > 0).tolist() == [True, False, False]
    assert not decoded(LowRank(2), np.zeros(1200, np.float32)).any()


@pytest.mark.parametrize("value", [LARGEST, -LARGEST])
def test_entries_next_to_the_largest_number_are_sent_smaller(value):
    """Q has numbers up to sqrt(n) times as large, which float32 does not hold."""
    found = decoded(LowRank(2), np.full(1200, value, np.float32)).astype(np.float64)
    ratio = found / value
    np.testing.assert_allclose(ratio, 1 / math.sqrt(40), rtol=2e-3)


def test_products_are_added_in_order_in_float32():
    """Entry by entry, with every operation rounded."""
    layout = Layout(("weight",), ((8, 9),))
    rng = generator(9)
    left, right = (rng.standard_normal((n, 3)).astype("<f4") for n in (8, 9))
    found = LowRank(3).decode(left.tobytes() + right.tobytes(), layout).to_dense().reshape(8, 9)
    for row in range(8):
        for column in range(9):
            total = np.float32(left[row, 0] * right[column, 0])
            for place in (1, 2):
                total = np.float32(total + np.float32(left[row, place] * right[column, place]))
            assert found[row, column] == total


@pytest.mark.parametrize("pair", [(LARGEST, LARGEST), (LARGEST, -LARGEST)])
def test_product_that_overflows_is_refused(pair):
    """Also infinity less infinity, which is NaN."""
    left = np.zeros((40, 2), "<f4")
    left[7] = pair
    right = np.full((30, 2), 4, "<f4")
    with pytest.raises(DecodeError, match="a product of the factors is NaN or infinite"):
        LowRank(2).decode(left.tobytes() + right.tobytes(), MATRIX)
