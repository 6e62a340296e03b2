"""Error feedback: what compression leaves out is kept, up to one float32 rounding."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from strategies.compression.decoded_update import DenseUpdate, SparseUpdate
from strategies.compression.error_feedback import (
    MAX_CHANGE,
    MomentumCorrection,
    OutOfRangeError,
    Residual,
    check_range,
    compress,
)
from strategies.compression.float32 import Float32
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
    data, sent = compress(total, compressor, layout, rng)
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


@pytest.mark.parametrize(
    ("update", "residual"),
    [(np.nan, 0), (np.inf, 0), (-np.inf, 1), (3e38, 3e38), (np.inf, -np.inf)],
)
def test_sum_that_is_not_finite_raises_diverged_error(update, residual, recwarn):
    residual = float32([1, residual, 3])
    before = residual.copy()
    with pytest.raises(OutOfRangeError, match="NaN or infinite"):
        send(float32([0, update, 0]), residual, Float32(), layout_of(3), generator())
    np.testing.assert_array_equal(residual, before)
    assert not recwarn


def test_values_up_to_the_bound_are_in_range():
    for value in (0.0, MAX_CHANGE, -MAX_CHANGE):
        check_range(DenseUpdate(float32([1, value])))
        check_range(SparseUpdate(9, np.array([4]), float32([value])))
    check_range(SparseUpdate(9, np.empty(0, np.int64), float32([])))


BEYOND = np.nextafter(np.float32(2**64), np.float32(np.inf))


@pytest.mark.parametrize("value", [BEYOND, -1e30, np.nan, np.inf, -np.inf])
def test_value_beyond_the_bound_or_not_finite_raises_diverged_error(value):
    for update in (
        DenseUpdate(float32([1, value])),
        SparseUpdate(9, np.array([2, 4]), float32([1, value])),
    ):
        with pytest.raises(OutOfRangeError, match="the update changes a weight by"):
            check_range(update)


def empty(size=3):
    return {name: np.zeros(size, np.float32) for name in ("residual", "momentum")}


def test_memory_is_not_changed_and_a_lost_update_stays_in_it():
    feedback, before = MomentumCorrection(0.5), empty()
    _, memory = feedback.to_send(float32([4, 2, 1]), before)
    assert not before["momentum"].any()
    to_send, _ = feedback.to_send(float32([0, 0, 0]), memory)  # the first was not accepted
    assert to_send.tolist() == [6, 3, 1.5]


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_update_that_is_not_finite_stays_so(value, recwarn):
    """`compress` refuses it; clipping must not hide it."""
    to_send, _ = MomentumCorrection(0.9, 1.0).to_send(float32([value, 1]), empty(2))
    assert not np.isfinite(to_send).all()
    assert not recwarn
