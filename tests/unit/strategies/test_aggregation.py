"""Weighted means and norms, against float64 references and by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from strategies.rounds.aggregation import BufferMean
from strategies.rounds.model import change_norm
from strategies.rounds.reply_errors import NormError
from strategies.rounds.reply_validation import check_norm
from strategies.rounds.values import ReplyBounds

WEIGHTS = st.integers(1, 10**6)


@st.composite
def clients(draw, dtypes=(np.float32, np.float64)):
    """Return one round's updates (two arrays, one of them maybe 0-d) and unbalanced weights."""
    layout = {
        name: (
            draw(st.sampled_from(dtypes)),
            draw(hnp.array_shapes(min_dims=0, max_dims=3, max_side=4)),
        )
        for name in ("weight", "bias")
    }
    weights = draw(st.lists(WEIGHTS, min_size=1, max_size=6))
    elements = st.floats(-1e6, 1e6, width=32, allow_subnormal=False)
    updates = [
        {
            name: draw(hnp.arrays(dtype, shape, elements=elements))
            for name, (dtype, shape) in layout.items()
        }
        for _ in weights
    ]
    return updates, weights


def weighted_mean(updates, weights):
    mean = BufferMean({name: np.zeros_like(array) for name, array in updates[0].items()})
    for update, weight in zip(updates, weights, strict=True):
        mean.add(update, weight)
    return mean.result()


@settings(max_examples=60, deadline=None)
@given(clients())
def test_weighted_mean_equals_the_float64_reference(case):
    updates, weights = case
    mean = weighted_mean(updates, weights)
    assert list(mean) == ["weight", "bias"]
    for name, array in mean.items():
        first = updates[0][name]
        assert isinstance(array, np.ndarray)
        assert (array.dtype, array.shape) == (first.dtype, first.shape)
        largest = max(np.abs(update[name]).max() for update in updates)
        error = np.finfo(first.dtype).eps * largest  # one rounding of the result, no more
        stack = np.stack([update[name] for update in updates]).astype(np.float64)
        expected = np.average(stack, axis=0, weights=np.array(weights, dtype=np.float64))
        np.testing.assert_allclose(array, expected, rtol=0, atol=max(error, 1e-14 * largest))


@settings(max_examples=40, deadline=None)
@given(clients(dtypes=(np.float32,)), st.lists(WEIGHTS, min_size=1, max_size=8))
def test_weighted_mean_of_equal_updates_is_that_update_to_the_bit(case, weights):
    update = case[0][0]
    mean = weighted_mean([update] * len(weights), weights)
    for name, array in mean.items():
        np.testing.assert_array_equal(array, update[name])


@pytest.mark.parametrize(("values", "weights", "mean"), [((1, 2), (1, 3), 2), ((-3, 6), (2, 1), 0)])
def test_mean_of_integers_is_rounded(values, weights, mean):
    """1*1/4 + 3*2/4 = 1.75 is 2 (truncated: 1)."""
    updates = [{"n": np.array([value], np.int64)} for value in values]
    array = weighted_mean(updates, weights)["n"]
    assert array.dtype == np.int64
    assert array.tolist() == [mean]


@settings(deadline=None)
@given(clients())
def test_norm_is_that_of_the_difference_in_float64(drawn):
    first, last = drawn[0][0]["weight"].reshape(-1), drawn[0][-1]["weight"].reshape(-1)
    wide = first.astype(np.float64)
    assert change_norm(first) == pytest.approx(np.sqrt(np.sum(wide**2)))
    difference = np.sqrt(np.sum((wide - last) ** 2))
    assert change_norm(first, last) == pytest.approx(difference)


def test_counters_do_not_count_in_the_norm():
    """Batch normalisation's counter rises with every batch, whatever the training did."""
    arrays = {"w": np.array([3.0, 4.0]), "count": np.array(60), "mask": np.array([True])}
    sent = {name: np.zeros_like(array) for name, array in arrays.items()}
    check_norm(12.0, arrays, sent, ReplyBounds(max_update_norm=13.0))
    with pytest.raises(NormError, match="the update's norm is 13, max"):
        check_norm(12.0, arrays, sent, ReplyBounds(max_update_norm=12.9))
