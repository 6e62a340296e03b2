"""FedAvg and FedSGD on real messages."""

import numpy as np
import pytest
from flwr.app import ConfigRecord

import strategies
from strategies.fedavg import FedAvg
from strategies.rounds.values import ReplyBounds, RunSettings
from tests.support.replies import as_numpy, cohort, reasons, record, reply

pytestmark = pytest.mark.usefixtures("server_identity")


def configured(arrays, **settings):
    """Return the runner of a strategy that has configured round 4."""
    strategy = strategies.build("fedavg", {}, RunSettings(**settings))
    config = ConfigRecord({"learning-rate": 0.1})
    strategy.configure_train(4, record(arrays), config, cohort())
    return strategy


@pytest.mark.parametrize(
    ("name", "weights", "expected"),
    [
        ("fedavg", {}, 4.0),  # (1 * 1 + 3 * 5) / 4
        ("fedavg", {"weights": "uniform"}, 3.0),  # (1 + 5) / 2
        ("fedsgd", {}, 8.0),  # 10 - 0.5 * (1 * 1 + 3 * 5) / 4
        ("fedsgd", {"weights": "uniform"}, 8.5),  # 10 - 0.5 * (1 + 5) / 2
    ],
)
def test_weights_by_hand(name, weights, expected):
    strategy = strategies.build(name, weights)
    config = ConfigRecord({"learning-rate": 0.5})
    strategy.configure_train(1, record({"w": np.array([10.0])}), config, cohort(1, 2))
    replies = [
        reply(1, {"w": np.array([1.0])}, 1, **{"train-loss": 2.0}, own=3.0),
        reply(2, {"w": np.array([5.0])}, 3, **{"train-loss": 6.0}),
    ]
    outcome = strategy.finish_round(replies)
    assert outcome.model["w"].numpy().tolist() == [expected]
    assert dict(outcome.metrics) == {"train-loss": 5.0}  # by examples, and of all clients


class HalfStepFedAvg(FedAvg):
    """Average half of each client's change, computed from what FedAvg reads."""

    def read(self, now, reply):
        """Return w + (w_k - w) / 2."""
        (trained,) = super().read(now, reply)
        change = trained - now.model.vector
        return (now.model.vector + np.clip(0.5 * change, -4, 4),)


def test_a_subclass_computes_on_what_fedavg_reads():
    strategy = strategies.build(f"{__name__}:HalfStepFedAvg", {})
    sent = {"w": np.array([10.0, 1.0]), "b": np.array([[2.0]])}
    strategy.configure_train(1, record(sent), ConfigRecord({"learning-rate": 0.5}), cohort(1, 2))
    replies = [
        reply(1, {"w": np.array([30.0, 3.0]), "b": np.array([[2.0]])}, 1),  # +4 (clipped), +1, 0
        reply(2, {"w": np.array([10.0, 1.0]), "b": np.array([[0.0]])}, 3),  # 0, 0, -1
    ]
    outcome = strategy.finish_round(replies)
    assert outcome.model["w"].numpy().tolist() == [11.0, 1.25]
    assert outcome.model["b"].numpy().tolist() == [[1.25]]


def test_update_norm_is_measured_from_the_model_that_was_sent():
    """The model may be large; how far a client moves it must not exceed the bound."""
    sent = {"weight": np.full((3, 4), 100, np.float32), "bias": np.full(4, -50, np.float32)}

    def moved(by):  # a norm of 4 |by|
        return {name: array + np.float32(by) for name, array in sent.items()}

    strategy = configured(sent, bounds=ReplyBounds(max_update_norm=8.5))
    replies = [reply(10, moved(2)), reply(20, moved(-2.25)), reply(30, moved(1), 3)]
    outcome = strategy.finish_round(replies)
    assert reasons(outcome) == {20: "the update's norm is 9, max-update-norm is 8.5"}
    for name, array in as_numpy(outcome.model).items():
        np.testing.assert_array_equal(array, moved(1.25)[name])


MODEL = {
    "weight": np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3),
    "bias": np.array([0.5, -0.5], np.float32),
}
RATE = 0.37


def with_gradients(model=MODEL, rate=RATE, settings=None):
    strategy = strategies.build("fedsgd", {}, settings)
    config = ConfigRecord({"learning-rate": rate})
    strategy.configure_train(2, record(model), config, cohort(10, 20, 30))
    return strategy


def test_norm_bound_is_that_of_the_gradient_itself():
    far = {name: array + 1000 for name, array in MODEL.items()}  # a gradient near it is large
    flat = {"weight": np.ones((2, 3), np.float32), "bias": np.full(2, np.sqrt(1.5), np.float32)}
    # That of `flat` is the root of 6 + 2 * 1.5.
    settings = RunSettings(bounds=ReplyBounds(max_update_norm=3.001))
    strategy = with_gradients(far, settings=settings)
    outcome = strategy.finish_round([reply(10, far), reply(20, flat)])
    assert list(outcome.rejected) == [10]
    assert "max-update-norm is 3.001" in str(outcome.rejected[10])
    np.testing.assert_allclose(as_numpy(outcome.model)["weight"], far["weight"] - RATE)
