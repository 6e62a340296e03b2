"""Error feedback with momentum, against the algorithm written out entry by entry."""

import math

import numpy as np
import pytest

from strategies.compression.decoded_update import SparseUpdate
from strategies.compression.momentum_correction import MomentumCorrection
from tests.support.compression_reference import float32


def empty(size=3):
    return {name: np.zeros(size, np.float32) for name in ("residual", "momentum")}


def test_two_steps_by_hand():
    feedback = MomentumCorrection(momentum=0.5)
    to_send, memory = feedback.to_send(float32([4, 2, 1]), empty())
    assert to_send.tolist() == [4, 2, 1]
    memory = feedback.accepted(memory, SparseUpdate(3, np.array([0]), float32([4])))
    assert memory["residual"].tolist() == [0, 2, 1]
    assert memory["momentum"].tolist() == [0, 2, 1], "masked where it was sent"
    to_send, memory = feedback.to_send(float32([4, 2, 1]), memory)
    # u = 0.5 (0, 2, 1) + (4, 2, 1) = (4, 3, 1.5); v = (0, 2, 1) + u
    assert memory["momentum"].tolist() == [4, 3, 1.5]
    assert to_send.tolist() == memory["residual"].tolist() == [4, 5, 2.5]


def test_memory_is_not_changed_and_a_lost_update_stays_in_it():
    feedback, before = MomentumCorrection(0.5), empty()
    _, memory = feedback.to_send(float32([4, 2, 1]), before)
    assert not before["momentum"].any()
    to_send, _ = feedback.to_send(float32([0, 0, 0]), memory)  # the first was not accepted
    assert to_send.tolist() == [6, 3, 1.5]


def test_without_momentum_it_is_the_residual():
    feedback = MomentumCorrection(momentum=0.0)
    rng = np.random.default_rng(0)
    memory, done, sent = empty(50), np.zeros(50), np.zeros(50)
    for _ in range(20):
        update = rng.normal(size=50).astype(np.float32)
        to_send, memory = feedback.to_send(update, memory)
        kept = np.sort(np.argsort(-np.abs(to_send))[:5])
        of_round = SparseUpdate(50, kept, to_send[kept])
        memory = feedback.accepted(memory, of_round)
        done, sent = done + update, sent + of_round.to_dense()
    np.testing.assert_allclose(sent + memory["residual"], done, atol=1e-5)


@pytest.mark.parametrize(("norm", "expected"), [(10.0, [6, 8]), (5.0, [3, 4]), (math.inf, [6, 8])])
def test_update_is_clipped_to_the_norm(norm, expected):
    to_send, _ = MomentumCorrection(0.9, norm).to_send(float32([6, 8]), empty(2))
    np.testing.assert_allclose(to_send, expected, rtol=1e-6)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_update_that_is_not_finite_stays_so(value, recwarn):
    """`compress` refuses it; clipping must not hide it."""
    to_send, _ = MomentumCorrection(0.9, 1.0).to_send(float32([value, 1]), empty(2))
    assert not np.isfinite(to_send).all()
    assert not recwarn
