"""Flower's own strategies behind our screening."""

import flwr.serverapp.strategy as flower
import numpy as np
import pytest
from flwr.app import ConfigRecord, MetricRecord

import strategies
from tests.strategies.replies import Nodes, model, reply, values

ALL = {"min_train_nodes": 1, "min_evaluate_nodes": 1, "min_available_nodes": 1}


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("FedAvg", {}),
        ("FedAdam", {"eta": 0.1, "tau": 0.01}),
        ("FedMedian", {}),
        ("Krum", {"num_malicious_nodes": 1}),
    ],
)
def test_bad_replies_do_not_reach_them(name, arguments):
    screened = strategies.build(f"flwr.serverapp.strategy:{name}", arguments)
    bare = getattr(flower, name)(**ALL, **arguments)
    nodes = Nodes(*range(1, 8))
    for strategy in (screened, bare):
        list(strategy.configure_train(1, model(), ConfigRecord(), nodes))

    def good():
        return [
            reply(node, arrays=model(float(value)), metrics={"num-examples": node, "loss": 1.0})
            for node, value in enumerate(np.random.default_rng(2).normal(size=5), start=1)
        ]

    odd = good()
    odd[2].content["metrics"] = MetricRecord({"num-examples": 3, "loss": 1.0, "of-my-own": 2.0})
    bad = [reply(6, arrays=model(np.nan)), reply(7, metrics=False)]
    arrays, metrics = screened.aggregate_train(1, [bad[0], *odd, bad[1]])
    expected, _ = bare.aggregate_train(1, good())
    assert set(screened.rejected) == {6, 7}
    assert metrics["loss"] == pytest.approx(1.0)
    for key, array in values(arrays).items():
        assert array.dtype == np.float32  # FedAdam itself hands back float64
        np.testing.assert_allclose(array, expected[key].numpy(), rtol=1e-6, atol=1e-7)


def test_without_a_usable_reply_there_is_no_model():
    screened = strategies.build("flwr.serverapp.strategy:FedMedian", {})
    list(screened.configure_train(1, model(), ConfigRecord(), Nodes(1)))
    assert screened.aggregate_train(1, [reply(1, arrays=False)]) == (None, None)
    assert screened.aggregate_evaluate(1, [reply(1, metrics=False)]) is None


def test_evaluation_passes_through():
    screened = strategies.build("flwr.serverapp.strategy:FedAvg", {})
    sent = list(screened.configure_evaluate(1, model(), ConfigRecord(), Nodes(1, 2)))
    assert sorted(message.metadata.dst_node_id for message in sent) == [1, 2]
    replies = [
        reply(1, arrays=False, metrics={"num-examples": 1, "accuracy": 0.0}),
        reply(2, arrays=False, metrics={"num-examples": 3, "accuracy": 1.0, "extra": 1}),
    ]
    assert screened.aggregate_evaluate(1, replies)["accuracy"] == pytest.approx(0.75)
