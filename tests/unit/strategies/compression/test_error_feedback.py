"""Error feedback: what compression leaves out is kept, up to one float32 rounding."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from strategies.compression.error_feedback import Residual
from strategies.compression.sparse import Sparse
from strategies.compression.ternary import Ternary
from tests.support.compression_reference import (
    FINITE,
    SMALLEST,
    SPARSITY,
    float32,
    generator,
    layout_of,
    no_deadline,
    vectors_in_blocks,
)

COMPRESSORS = {"ternary": Ternary, "sparse": Sparse}
RESIDUAL = Residual()


def send(update, residual, compressor, layout, rng):
    """Return the bytes, the update that they decode to, and the residual once it is accepted."""
    total, memory = RESIDUAL.to_send(update, {"residual": residual})
    data = compressor.encode(total, layout, rng)
    sent = compressor.decode(data, layout)
    return data, sent, RESIDUAL.accepted(memory, sent)["residual"]


@no_deadline
@given(vectors_in_blocks(), st.sampled_from(sorted(COMPRESSORS)), SPARSITY, st.data())
def test_sent_update_and_new_residual_sum_to_update_and_old_residual(
    drawn, compressor, sparsity, data
):
    update, blocks = drawn
    residual = float32(data.draw(st.lists(FINITE, min_size=len(update), max_size=len(update))))
    with np.errstate(over="ignore"):
        accumulated = residual + update
    assume(np.isfinite(accumulated).all())
    update_before, residual_before = update.copy(), residual.copy()

    made, layout = COMPRESSORS[compressor](sparsity), layout_of(*blocks)
    data, sent, left = send(update, residual, made, layout, generator())
    np.testing.assert_array_equal(update, update_before)
    np.testing.assert_array_equal(residual, residual_before)
    assert left.dtype == np.float32
    assert np.isfinite(left).all()
    dense = sent.to_dense()
    not_sent = dense == 0
    np.testing.assert_array_equal(left[not_sent], accumulated[not_sent])
    exact = accumulated.astype(np.float64) - dense
    rounding = np.maximum(np.abs(exact) * 2.0**-24, SMALLEST)
    assert (np.abs(left - exact) <= rounding).all()
    assert data == made.encode(accumulated, layout, generator())
    assert made.decode(data, layout).to_dense().tobytes() == dense.tobytes()


def test_memory_is_not_changed_and_a_lost_update_stays_in_it():
    before = {"residual": float32([1, 0, 0])}
    _, memory = RESIDUAL.to_send(float32([4, 2, 1]), before)
    assert before["residual"].tolist() == [1, 0, 0]
    to_send, _ = RESIDUAL.to_send(float32([1, 0, 0]), memory)  # the first was not accepted
    assert to_send.tolist() == [6, 2, 1]


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_non_finite_update_stays_non_finite(value, recwarn):
    """`compress` refuses it."""
    to_send, _ = RESIDUAL.to_send(float32([value, 1]), {"residual": float32([-value, 1])})
    assert not np.isfinite(to_send).all()
    assert not recwarn
