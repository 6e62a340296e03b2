"""Metrics that a strategy of Flower's asks for by a name of its own."""

import math

import numpy as np
import pytest
from flwr.app import ConfigRecord

import strategies
from tests.support.replies import cohort, evaluated, outcome_of_evaluation, reasons, record, reply

pytestmark = pytest.mark.usefixtures("server_identity")

FLOWERS = "flwr.serverapp.strategy"


def weights(value):
    return {"w": np.full(2, value, np.float32)}


def qfedavg(**arguments):
    arguments = {"client_learning_rate": 0.5, "q": 1.0, **arguments}
    return strategies.build(f"{FLOWERS}:QFedAvg", arguments)


def aggregated(adapter, replies):
    nodes = range(1, len(replies) + 1)
    adapter.configure_train(1, record(weights(1)), ConfigRecord(), cohort(*nodes))
    return adapter.finish_round(replies)


def test_reply_without_the_training_loss_is_rejected_alone():
    adapter = qfedavg()
    replies = [
        reply(1, weights(0), **{"train-loss": 0.5}),
        reply(2, weights(0)),
        reply(3, weights(0), **{"train-loss": math.nan}),
        reply(4, weights(0), **{"train-loss": -1.0}),
    ]
    outcome = aggregated(adapter, replies)
    np.testing.assert_allclose(outcome.model["w"].numpy(), 1 - 1 / 9, rtol=1e-6)
    assert reasons(outcome) == {
        2: "no usable metric 'train_loss', which the strategy needs",
        3: "no usable metric 'train_loss', which the strategy needs",
        4: "metric 'train_loss' is -1, not from 0 to 1e+06",
    }


@pytest.mark.parametrize(
    ("arguments", "theirs"), [({}, "train_loss"), ({"train_loss_key": "train-loss"}, "train-loss")]
)
def test_qfedavg_reads_the_clients_training_loss_in_either_spelling(arguments, theirs):
    """Li et al. 2020: q = 1, L = 2, w = 1, w_k = 0, 3 and 0, F_k = 0.5, 2 and 0.5, in two entries.

    Delta_k = F_k L (w - w_k) = 1, -8 and 1; h_k = |L (w - w_k)|^2 + L F_k = 9, 36 and 9. Where a
    client sends both spellings the strategy's own is taken.
    """
    both = {"train_loss": 9.0, "train-loss": 9.0, theirs: 0.5}
    replies = [
        reply(1, weights(0), **{"train-loss": 0.5}),
        reply(2, weights(3), **{theirs: 2.0}),
        reply(3, weights(0), **both),
    ]
    outcome = aggregated(qfedavg(**arguments), replies)
    arrays, metrics = outcome.model, outcome.metrics
    np.testing.assert_allclose(arrays["w"].numpy(), 1 - (1 - 8 + 1) / (9 + 36 + 9), rtol=1e-6)
    assert dict(metrics) == {"train-loss": pytest.approx(1.0)}


def test_mean_has_the_strategys_own_weights_and_evaluations_without_them_are_rejected():
    adapter = strategies.build(f"{FLOWERS}:FedAvg", {"weighted_by_key": "my-weight"})
    evaluation = [
        evaluated(1, 1, loss=1.0, **{"my-weight": 1.0}),
        evaluated(2, 1, loss=5.0),
        evaluated(3, 1, loss=5.0, **{"my-weight": 3.0}),
        evaluated(4, 1, loss=math.nan, **{"my-weight": 5.0}),
    ]
    outcome = outcome_of_evaluation(adapter, evaluation)
    assert (outcome.metrics["loss"], list(outcome.rejected)) == (4.0, [2])
