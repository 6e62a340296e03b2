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


def configured(model=MODEL, rate=RATE):
    strategy = FedSGD()
    config = ConfigRecord({"learning-rate": rate})
    strategy.configure_train(2, record(model), config, cohort(10, 20, 30))
    return strategy


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
