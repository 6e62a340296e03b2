"""FedAvg on real messages."""

import numpy as np
import pytest
from flwr.app import ConfigRecord

import strategies
from strategies.base import RunSettings
from strategies.fedavg import FedAvg
from strategies.reply_validation import ReplyBounds
from tests.support.replies import as_numpy, cohort, reasons, record, reply

pytestmark = pytest.mark.usefixtures("server_identity")


def configured(arrays, **settings):
    """Return a strategy that has configured round 4."""
    strategy = FedAvg()
    strategy.settings = RunSettings(**settings)
    config = ConfigRecord({"learning-rate": 0.1})
    strategy.configure_train(4, record(arrays), config, cohort())
    return strategy


@pytest.mark.parametrize(("weights", "expected"), [("samples", 4.0), ("uniform", 3.0)])
def test_weights_by_hand(weights, expected):
    strategy = strategies.build("fedavg", {"weights": weights})
    strategy.configure_train(1, record({"w": np.array([10.0])}), ConfigRecord(), cohort(1, 2))
    replies = [
        reply(1, {"w": np.array([1.0])}, 1, **{"train-loss": 2.0}, own=3.0),
        reply(2, {"w": np.array([5.0])}, 3, **{"train-loss": 6.0}),
    ]
    arrays, metrics = strategy.aggregate_train(1, replies)
    assert arrays["w"].numpy().tolist() == [expected]  # (1 * 1 + 3 * 5) / 4 or (1 + 5) / 2
    assert dict(metrics) == {"train-loss": 5.0}  # by examples, and of all clients


def test_update_norm_is_measured_from_the_model_that_was_sent():
    """The model may be large; how far a client moves it must not exceed the bound."""
    sent = {"weight": np.full((3, 4), 100, np.float32), "bias": np.full(4, -50, np.float32)}

    def moved(by):  # a norm of 4 |by|
        return {name: array + np.float32(by) for name, array in sent.items()}

    strategy = configured(sent, bounds=ReplyBounds(max_update_norm=8.5))
    replies = [reply(10, moved(2)), reply(20, moved(-2.25)), reply(30, moved(1), 3)]
    outcome = strategy.finish_round(4, replies)
    assert reasons(outcome) == {20: "the update's norm is 9, max-update-norm is 8.5"}
    for name, array in as_numpy(outcome.model).items():
        np.testing.assert_array_equal(array, moved(1.25)[name])


def test_buffers_of_batch_normalisation_are_averaged():
    """Its state dict has a 0-d int64 array, num_batches_tracked."""
    sent = {"scale": np.ones(2, np.float32), "num_batches_tracked": np.array(0)}
    replies = [
        reply(10, {"scale": np.full(2, 1, np.float32), "num_batches_tracked": np.array(4)}),
        reply(20, {"scale": np.full(2, 3, np.float32), "num_batches_tracked": np.array(8)}),
    ]
    arrays, _ = configured(sent).aggregate_train(4, replies)
    found = as_numpy(arrays)
    assert found["scale"].tolist() == [2.0, 2.0]
    assert found["num_batches_tracked"].dtype == np.int64
    assert found["num_batches_tracked"].shape == ()
    assert found["num_batches_tracked"] == 6
