"""Decoded updates: dense vectors, sums, norms."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies.compression.decoded_update import DenseUpdate
from strategies.compression.sign import Sign
from strategies.compression.sparse import Sparse
from strategies.compression.ternary import Ternary
from tests.support.compression_reference import (
    SPARSITY,
    generator,
    layout_of,
    no_deadline,
    vectors,
    vectors_in_blocks,
)


@st.composite
def updates(draw):
    """Draw updates as decoders make them, sparse and dense."""
    if draw(st.booleans()):
        return DenseUpdate(draw(vectors()))
    vector, blocks = draw(vectors_in_blocks())
    kinds = [Sign(), Sparse(draw(SPARSITY)), Ternary(draw(SPARSITY))]
    compressor, layout = draw(st.sampled_from(kinds)), layout_of(*blocks)
    return compressor.decode(compressor.encode(vector, layout, generator()), layout)


@no_deadline
@given(updates(), st.floats(0.01, 100))
def test_add_to_adds_the_weighted_dense_vector_in_float64(update, weight):
    total = np.random.default_rng(0).normal(size=update.size)
    expected = total + weight * update.to_dense().astype(np.float64)
    update.add_to(total, weight)
    np.testing.assert_array_equal(total, expected)


@no_deadline
@given(updates())
def test_norm_is_that_of_the_dense_vector_in_float64(update):
    exact = math.sqrt(math.fsum(float(x) ** 2 for x in update.to_dense()))
    assert update.norm() == pytest.approx(exact)
