import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord
from flwr.serverapp.strategy import Strategy

from strategies.fedavg import FedAvg
from strategies.fedsgd import FedSGD
from tests.strategies.replies import Nodes, configure, failed, model, record, reply, values

COUNTS = {11: 600, 12: 1, 13: 73, 14: 2400}


@pytest.fixture
def updates():
    rng = np.random.default_rng(0)
    return {
        node: {"w": rng.normal(size=(2, 3)).astype("f4"), "b": rng.normal(size=3).astype("f4")}
        for node in COUNTS
    }


def replies_of(updates):
    return [
        reply(node, arrays=record(**arrays), metrics={"num-examples": COUNTS[node], "loss": 1.0})
        for node, arrays in updates.items()
    ]


def reference(updates, name):
    total = sum(COUNTS[node] for node in updates)
    return sum(COUNTS[node] / total * np.float64(arrays[name]) for node, arrays in updates.items())


@pytest.mark.parametrize("strategy", [FedAvg, FedSGD])
def test_they_are_flower_strategies(strategy):
    assert issubclass(strategy, Strategy)


def test_fedavg_on_unbalanced_clients_is_the_float64_mean(updates):
    strategy = FedAvg()
    configure(strategy, model(), *COUNTS)
    arrays, metrics = strategy.aggregate_train(1, replies_of(updates))
    for name, array in values(arrays).items():
        np.testing.assert_allclose(array, reference(updates, name), rtol=1e-6, atol=1e-8)
        assert array.dtype == np.float32
    assert dict(metrics) == {"loss": 1.0}
    assert strategy.rejected == {}


def test_fedsgd_steps_along_the_mean_gradient(updates):
    strategy = FedSGD()
    configure(strategy, model(2.0), *COUNTS, rate=0.5)
    arrays, _ = strategy.aggregate_train(1, replies_of(updates))
    for name, array in values(arrays).items():
        expected = 2.0 - 0.5 * reference(updates, name)
        np.testing.assert_allclose(array, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("strategy", [FedAvg(), FedSGD()])
def test_one_poisoned_client_is_dropped_and_logged(strategy, updates, caplog):
    configure(strategy, model(), *COUNTS)
    clean = {node: arrays for node, arrays in updates.items() if node != 13}
    expected, _ = strategy.aggregate_train(1, replies_of(clean))
    poisoned = [r if r.metadata.src_node_id != 13 else reply(13, arrays=model(np.nan))
                for r in replies_of(updates)]  # fmt: skip
    arrays, _ = strategy.aggregate_train(7, poisoned)
    assert list(strategy.rejected) == [13]
    assert "round 7: reply of node 13 rejected: array 'w' has NaN" in caplog.text
    for name, array in values(arrays).items():
        assert np.array_equal(array, expected[name].numpy())


@pytest.mark.parametrize("strategy", [FedAvg(), FedSGD()])
def test_without_a_usable_reply_there_is_no_model(strategy):
    configure(strategy, model(), 1, 2)
    assert strategy.aggregate_train(1, []) == (None, None)
    bad = [failed(1, "it broke"), reply(2, arrays=False)]
    assert strategy.aggregate_train(1, bad) == (None, None)
    assert set(strategy.rejected) == {1, 2}


@pytest.mark.parametrize(("strategy", "kind"), [(FedAvg(), "train"), (FedSGD(), "train.gradient")])
def test_one_message_per_node_in_the_grids_order(strategy, kind):
    sent = list(
        strategy.configure_train(5, model(3.0), ConfigRecord({"learning-rate": 0.1}), Nodes(9, 2))
    )
    assert [message.metadata.dst_node_id for message in sent] == [9, 2]
    for message in sent:
        assert message.metadata.message_type == kind
        assert message.metadata.group_id == "5"
        assert values(message.content["arrays"])["b"].tolist() == [3.0] * 3
        assert message.content["config"]["server-round"] == 5


def test_evaluation_is_the_weighted_mean_of_the_clients_metrics():
    strategy = FedAvg()
    sent = strategy.configure_evaluate(1, ArrayRecord(), ConfigRecord(), Nodes(1, 2, 3))
    assert [message.metadata.message_type for message in sent] == ["evaluate"] * 3
    replies = [
        reply(1, arrays=False, metrics={"num-examples": 100, "accuracy": 0.5}),
        reply(2, arrays=False, metrics={"num-examples": 300, "accuracy": 0.9}),
        reply(3, arrays=False, metrics={"num-examples": -1, "accuracy": 99.0}),
    ]
    assert strategy.aggregate_evaluate(1, replies)["accuracy"] == pytest.approx(0.8)
    assert set(strategy.rejected) == {3}
    assert strategy.aggregate_evaluate(1, []) is None


def test_fedsgd_needs_a_learning_rate():
    with pytest.raises(ValueError, match="learning-rate"):
        FedSGD().configure_train(1, model(), ConfigRecord(), Nodes(1))
