"""Error feedback with momentum, against the algorithm written out entry by entry."""

import math

import numpy as np
import pytest

from strategies.compression.momentum_correction import MomentumCorrection
from tests.support.compression_reference import float32


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
