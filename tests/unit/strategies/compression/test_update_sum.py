"""Sums of updates over a round, and of estimates over all rounds."""

import numpy as np
import pytest

from strategies.compression.decoded_update import DenseUpdate
from strategies.compression.update_sum import EstimateSum
from tests.support.compression_reference import float32


def dense(*values):
    return DenseUpdate(float32(values))


def test_sum_stays_that_of_the_estimates_over_many_rounds():
    rng = np.random.default_rng(1)
    found = EstimateSum()
    for _ in range(300):
        for node in rng.choice(9, 3, replace=False).tolist():
            anew = node not in found or bool(rng.random() < 0.1)
            update = DenseUpdate(rng.normal(size=20).astype(np.float32))
            found.add(node, update, float(rng.integers(1, 50)), anew=anew)
        total, weight = found.finish()
        found.reset()
    estimates = np.stack([found[node] for node in range(9)]).astype(np.float64)
    weights = np.array([found._estimates[node][1] for node in range(9)])
    assert weight == pytest.approx(weights.sum())
    np.testing.assert_allclose(total, weights @ estimates, atol=1e-6)


def test_client_that_does_not_come_back_does_not_count():
    found = EstimateSum()
    found.add(1, dense(1, 2), 1.0, anew=True)
    found.add(2, dense(10, 0), 3.0, anew=True)
    found.finish()
    found.reset()
    for _ in range(2):
        found.forget(1)
    assert 1 not in found
    found.add(3, dense(1, 2), 1.0, anew=True)
    total, weight = found.finish()
    assert (total.tolist(), weight) == ([31, 2], 4)
    found.reset()
    found.forget(2)
    found.forget(3)
    found.add(4, dense(0, 1), 2.0, anew=True)
    total, weight = found.finish()
    assert (total.tolist(), weight) == ([0, 2], 2)
