"""What compression leaves out is kept, to the last bit that float32 has."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from strategies.compression.dense import Dense
from strategies.compression.feedback import compress_with_feedback
from strategies.compression.sparse import sparsify
from strategies.compression.ternary import ternarise
from tests.strategies.compression.reference import (
    FINITE,
    SMALLEST,
    SPARSITY,
    UNHURRIED,
    float32,
    in_blocks,
    vectors,
)

COMPRESSORS = {"ternary": ternarise, "sparse": sparsify}
compressors = st.sampled_from(list(COMPRESSORS.values()))


@UNHURRIED
@given(in_blocks(), compressors, SPARSITY, st.data())
def test_nothing_is_lost(drawn, compressor, sparsity, data):
    update, blocks = drawn
    kept = float32(data.draw(st.lists(FINITE, min_size=len(update), max_size=len(update))))
    with np.errstate(over="ignore"):
        accumulated = kept + update
    assume(np.isfinite(accumulated).all())
    update_before, kept_before = update.copy(), kept.copy()

    sent, residual = compress_with_feedback(
        update, kept, lambda total: compressor(total, sparsity, blocks)
    )
    np.testing.assert_array_equal(update, update_before)
    np.testing.assert_array_equal(kept, kept_before)
    assert residual.dtype == np.float32
    assert np.isfinite(residual).all()
    dense = sent.to_dense()
    untouched = dense == 0
    np.testing.assert_array_equal(residual[untouched], accumulated[untouched])
    exact = accumulated.astype(np.float64) - dense
    rounding = np.maximum(np.abs(exact) * 2.0**-24, SMALLEST)
    assert (np.abs(residual - exact) <= rounding).all()
    assert sent.encode() == compressor(accumulated, sparsity, blocks).encode()


@pytest.mark.parametrize("compressor", COMPRESSORS.values(), ids=COMPRESSORS)
@pytest.mark.parametrize("sparsity", [1 / 400, 1 / 10, 1])
def test_over_many_rounds_everything_arrives_or_waits(compressor, sparsity):
    rng = np.random.default_rng(3)
    size, rounds = 3000, 400
    residual = np.zeros(size, np.float32)
    updates, arrived = np.zeros(size), np.zeros(size)
    for _ in range(rounds):
        update = rng.normal(size=size).astype(np.float32)
        updates += update
        sent, residual = compress_with_feedback(
            update, residual, lambda total: compressor(total, sparsity, (1000, 2000))
        )
        arrived += sent.to_dense()
    np.testing.assert_allclose(arrived + residual, updates, atol=rounds * 1e-5)
    assert np.abs(arrived).max() > 1


@UNHURRIED
@given(vectors(least=1))
def test_sending_all_leaves_nothing(update):
    kept = np.zeros_like(update)
    sent, residual = compress_with_feedback(update, kept, Dense)
    np.testing.assert_array_equal(sent.to_dense(), update)
    assert not residual.any()


@pytest.mark.parametrize(
    ("update", "kept"), [(np.nan, 0), (np.inf, 0), (-np.inf, 1), (3e38, 3e38), (np.inf, -np.inf)]
)
def test_what_is_not_finite_is_refused(update, kept, recwarn):
    kept = float32([1, kept, 3])
    before = kept.copy()
    with pytest.raises(ValueError, match="NaN or infinite"):
        compress_with_feedback(float32([0, update, 0]), kept, Dense)
    np.testing.assert_array_equal(kept, before)
    assert not recwarn
