import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from strategies.aggregation import gradient_step, weighted_mean


def test_weighted_mean_by_hand():
    mean = weighted_mean([{"w": np.array([1.0, 0.0])}, {"w": np.array([5.0, 8.0])}], [1, 3])
    assert mean["w"].tolist() == [4.0, 6.0]  # (1*1 + 3*5) / 4, (1*0 + 3*8) / 4


@st.composite
def clients(draw):
    shape = draw(array_shapes(max_dims=3, max_side=5))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    count = draw(st.integers(1, 8))
    finite = st.floats(-1e4, 1e4, width=32)
    updates = [{"w": draw(arrays(dtype, shape, elements=finite))} for _ in range(count)]
    return updates, [draw(st.integers(1, 10**6)) for _ in range(count)]


@settings(deadline=None, max_examples=200)
@given(clients())
def test_weighted_mean_is_numpys_average_in_float64(drawn):
    updates, weights = drawn
    mean = weighted_mean(updates, weights)["w"]
    stacked = np.stack([update["w"].astype(np.float64) for update in updates])
    expected = np.average(stacked, axis=0, weights=weights)
    assert mean.dtype == updates[0]["w"].dtype
    assert mean.shape == updates[0]["w"].shape
    np.testing.assert_allclose(mean, expected, rtol=2e-7, atol=1e-9)
    assert (mean >= stacked.min(axis=0) - 1e-3).all()
    assert (mean <= stacked.max(axis=0) + 1e-3).all()


def test_float64_accumulation_keeps_what_float32_would_lose():
    """2^24 + 1 is no float32: a sum of ones in float32 gets stuck, one in float64 does not."""
    big = {"w": np.array([2.0**24], np.float32)}
    ones = [{"w": np.array([1.0], np.float32)}] * 99
    mean = weighted_mean([big, *ones], [1] * 100)["w"]
    assert mean[0] == np.float32((2.0**24 + 99) / 100)


def test_equal_updates_give_that_update_whatever_the_weights():
    update = {"w": np.array([0.1, -7.3], np.float32)}
    assert np.array_equal(weighted_mean([update] * 3, [600, 1, 17])["w"], update["w"])


def test_integer_arrays_are_rounded():
    mean = weighted_mean([{"n": np.array([3])}, {"n": np.array([4])}], [1, 3])
    assert mean["n"].dtype.kind == "i"
    assert mean["n"].tolist() == [4]  # 3.75


@pytest.mark.parametrize(
    ("count", "weights"),
    [(0, []), (2, [1]), (1, [0]), (1, [-1]), (1, [float("nan")]), (1, [float("inf")])],
)
def test_weights_must_be_positive_numbers_one_per_update(count, weights):
    with pytest.raises(ValueError, match="weight"):
        weighted_mean([{"w": np.zeros(1)}] * count, weights)


def test_gradient_step_by_hand():
    stepped = gradient_step(
        {"w": np.array([1.0, 2.0], np.float32)}, {"w": np.array([10.0, -4.0], np.float32)}, 0.25
    )
    assert stepped["w"].dtype == np.float32
    assert stepped["w"].tolist() == [-1.5, 3.0]
