"""FedSGD on real messages: one step along the weighted mean gradient, in float64."""

import numpy as np
import pytest
from flwr.app import ConfigRecord

import strategies
from strategies.base import RunSettings
from strategies.fedsgd import FedSGD
from strategies.reply_validation import ReplyBounds
from tests.support.replies import as_numpy, cohort, record, reply

pytestmark = pytest.mark.usefixtures("server_identity")

MODEL = {
    "weight": np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3),
    "bias": np.array([0.5, -0.5], np.float32),
}
RATE = 0.37


def gradient(seed):
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=array.shape).astype(np.float32) for name, array in MODEL.items()}


def configured(model=MODEL, rate=RATE):
    strategy = FedSGD()
    config = ConfigRecord({"learning-rate": rate})
    strategy.configure_train(2, record(model), config, cohort(10, 20, 30))
    return strategy


def assert_step(found, gradients, weights):
    assert list(found) == list(MODEL)
    for name, array in as_numpy(found).items():
        stack = np.stack([one[name] for one in gradients]).astype(np.float64)
        step = RATE * np.average(stack, axis=0, weights=weights)
        assert array.dtype == np.float32
        np.testing.assert_allclose(array, MODEL[name] - step, rtol=1e-6, atol=1e-7)


def test_train_messages_ask_for_gradients():
    config = ConfigRecord({"learning-rate": RATE})
    messages = list(FedSGD().configure_train(2, record(MODEL), config, cohort(30, 10)))
    assert [message.metadata.dst_node_id for message in messages] == [30, 10]
    for message in messages:
        assert message.metadata.message_type == "train.gradient"
        assert message.metadata.group_id == "2"
        assert dict(message.content["config"]) == {"learning-rate": RATE, "server-round": 2}
        np.testing.assert_array_equal(
            message.content["arrays"]["weight"].numpy(), MODEL["weight"], strict=True
        )


@pytest.mark.parametrize("config", [{}, {"learning-rate": "0.1"}, {"learning-rate": [0.1]}])
def test_config_without_a_learning_rate_is_rejected(config):
    with pytest.raises(ValueError, match="learning-rate"):
        FedSGD().configure_train(1, record(MODEL), ConfigRecord(config), cohort(10))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, 8.0),  # 10 - 0.5 * (1 * 1 + 3 * 5) / 4
        ({"weights": "samples"}, 8.0),
        ({"weights": "uniform"}, 8.5),  # 10 - 0.5 * (1 + 5) / 2
    ],
)
def test_step_by_hand(arguments, expected):
    strategy = strategies.build("fedsgd", arguments)
    config = ConfigRecord({"learning-rate": 0.5})
    strategy.configure_train(1, record({"w": np.array([10.0])}), config, cohort(1, 2))
    replies = [reply(1, {"w": np.array([1.0])}, 1), reply(2, {"w": np.array([5.0])}, 3)]
    arrays, _ = strategy.aggregate_train(1, replies)
    assert arrays["w"].numpy().tolist() == [expected]


def test_aggregate_train_steps_along_the_weighted_mean_gradient():
    gradients, weights = [gradient(1), gradient(2), gradient(3)], [600, 13, 2000]
    replies = [
        reply(10 * k, arrays, weight, **{"train-loss": float(k)})
        for k, (arrays, weight) in enumerate(zip(gradients, weights, strict=True), start=1)
    ]
    arrays, metrics = configured().aggregate_train(2, replies)
    assert_step(arrays, gradients, weights)
    assert metrics["train-loss"] == pytest.approx((600 + 2 * 13 + 3 * 2000) / 2613)


def test_norm_bound_is_that_of_the_gradient_itself():
    far = {name: array + 1000 for name, array in MODEL.items()}  # a gradient near it is large
    flat = {"weight": np.ones((2, 3), np.float32), "bias": np.full(2, np.sqrt(1.5), np.float32)}
    strategy = configured(far)
    # That of `flat` is the root of 6 + 2 * 1.5.
    strategy.settings = RunSettings(bounds=ReplyBounds(max_update_norm=3.001))
    outcome = strategy.finish_round(2, [reply(10, far), reply(20, flat)])
    assert list(outcome.rejected) == [10]
    assert "max-update-norm is 3.001" in str(outcome.rejected[10])
    np.testing.assert_allclose(as_numpy(outcome.model)["weight"], far["weight"] - RATE)


def test_step_starts_from_the_model_that_was_sent_last():
    strategy = configured()
    moved = {name: array + 1 for name, array in MODEL.items()}
    strategy.configure_train(3, record(moved), ConfigRecord({"learning-rate": RATE}), cohort(10))
    zero = {name: np.zeros_like(array) for name, array in MODEL.items()}
    arrays, _ = strategy.aggregate_train(3, [reply(10, zero)])
    for name, array in as_numpy(arrays).items():
        np.testing.assert_array_equal(array, moved[name], strict=True)


@pytest.mark.parametrize("dtype", [np.int64, np.float32])
def test_step_of_0d_arrays_keeps_dtype_and_shape(dtype):
    model = {"scale": np.ones(2, np.float32), "number": np.array(5, dtype)}
    zero = {"scale": np.ones(2, np.float32), "number": np.array(0, dtype)}
    arrays, _ = configured(model, rate=1.0).aggregate_train(
        2, [reply(10, zero, 2), reply(20, zero)]
    )
    found = as_numpy(arrays)
    assert found["scale"].tolist() == [0.0, 0.0]
    assert (found["number"].dtype, found["number"].shape, found["number"].item()) == (dtype, (), 5)
