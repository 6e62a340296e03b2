"""Top-k sparsification: which entries are sent, and their bytes."""

import math
import struct

import numpy as np
import pytest
from hypothesis import example, given

from strategies.compression.decoded_update import DecodeError
from strategies.compression.largest_entries import keep_count
from strategies.compression.sparse import Sparse
from strategies.compression.ternary import Ternary
from tests.support import compression_reference as reference
from tests.support.compression_reference import (
    SMALLEST,
    SPARSITY,
    float32,
    generator,
    layout_of,
    no_deadline,
    vectors_in_blocks,
)


def encode(values, sparsity, *blocks):
    return Sparse(sparsity).encode(float32(values), layout_of(*blocks), generator())


@no_deadline
@given(vectors_in_blocks(), SPARSITY)
@example((float32([-SMALLEST]), (1,)), 1.0)
def test_largest_entries_of_every_block_are_sent_unchanged(drawn, sparsity):
    values, blocks = drawn
    kept, start = [], 0
    for size in blocks:
        part = values[start : start + size]
        kept += [start + i for i in reference.largest(part, keep_count(size, sparsity))]
        start += size
    update = Sparse(sparsity).decode(encode(values, sparsity, *blocks), layout_of(*blocks))
    assert np.flatnonzero(update.to_dense().view(np.int32)).tolist() == kept
    expected = np.zeros_like(values)
    expected[kept] = values[kept]
    assert update.to_dense().tobytes() == expected.tobytes()


@pytest.mark.parametrize("value", [0, -0.0, math.nan, math.inf, -math.inf])
def test_value_that_is_zero_or_not_finite_is_rejected(value):
    data = bytearray(encode([0, 3, 0, 0, 3, 0, 0, 0], 0.25, 8))
    struct.pack_into("<f", data, 9, value)
    with pytest.raises(DecodeError, match=r"is zero|NaN or infinite"):
        Sparse(0.25).decode(bytes(data), layout_of(8))


@pytest.mark.parametrize("form", [Sparse, Ternary])
@pytest.mark.parametrize(
    ("sparsity", "blocks", "most"), [(0.25, (8,), 2), (0.25, (4, 4), 2), (0.3, (4, 4), 4)]
)
def test_more_entries_than_the_sparsity_allows_are_rejected(form, sparsity, blocks, most):
    values, layout = float32([1, 2, 3, 4, 5, 6, 7, 8]), layout_of(*blocks)
    form(sparsity).decode(form(most / 8).encode(values, layout, generator()), layout)
    with pytest.raises(DecodeError, match=f"k = 8, the sparsity allows {most}"):
        form(sparsity).decode(form(1.0).encode(values, layout, generator()), layout)
