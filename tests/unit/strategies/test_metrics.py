"""The means of clients' metrics, as whole rounds of our strategies and of Flower's give them."""

import logging
import math

import numpy as np
import pytest
from flwr.app import ConfigRecord

import strategies
from tests.support.replies import cohort, evaluated, outcome_of_evaluation, record, reply

pytestmark = pytest.mark.usefixtures("server_identity")

WEIGHTS = {"w": np.zeros(2, np.float32)}
STRATEGIES = ["fedavg", "fedsgd", "flwr.serverapp.strategy:FedAvg", "flwr.serverapp.strategy:Krum"]


def trained(name, *losses, **others):
    """Return the outcome of a round whose k-th client has k examples and the k-th loss."""
    strategy = strategies.build(name, {})
    nodes = range(1, 1 + len(losses))
    config = ConfigRecord({"learning-rate": 0.1})
    strategy.configure_train(1, record(WEIGHTS), config, cohort(*nodes))
    replies = [
        reply(node, WEIGHTS, node, **({} if loss is None else {"train-loss": loss}), **others)
        for node, loss in zip(nodes, losses, strict=True)
    ]
    return strategy.finish_round(replies)


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e308, -1e308, 1e13, None])
def test_metric_spoiled_by_one_client_is_the_mean_of_the_others(name, bad, caplog):
    outcome = trained(name, 0.5, bad, 2.0, 1.0)
    expected = (1 * 0.5 + 3 * 2.0 + 4 * 1.0) / (1 + 3 + 4)
    assert dict(outcome.metrics) == {"train-loss": pytest.approx(expected)}
    assert outcome.partial == {"train-loss": "3 of 4 clients"}
    assert "round 1: training metric train-loss is the mean of 3 of 4 clients" in caplog.text
    assert not outcome.rejected
    assert outcome.model is not None


@pytest.mark.parametrize("name", STRATEGIES)
def test_partial_metric_is_warned_of_once_a_run(name, caplog):
    strategy, warnings = strategies.build(name, {}), []
    for server_round, bad in ((1, "train-loss"), (2, "train-loss"), (3, "accuracy")):
        config = ConfigRecord({"learning-rate": 0.1})
        strategy.configure_train(server_round, record(WEIGHTS), config, cohort(1, 2, 3))
        replies = [reply(node, WEIGHTS, 1, **{"train-loss": 1.0, bad: 0.5}) for node in (1, 2)]
        outcome = strategy.finish_round([*replies, reply(3, WEIGHTS, 1, **{bad: math.nan})])
        assert bad in outcome.partial, "in the history of every round"
        warnings.append([line for line in caplog.messages if "is the mean of" in line])
        caplog.clear()
    assert [len(lines) for lines in warnings] == [1, 0, 1], "a line each"


@pytest.mark.parametrize("name", STRATEGIES)
def test_metric_of_all_clients_is_not_called_partial(name, caplog):
    outcome = trained(name, 0.5, 1e12, 2.0, 1.0, extra=1)
    assert set(outcome.metrics) == {"train-loss", "extra"}
    assert outcome.partial == {}
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("name", STRATEGIES)
def test_metric_without_usable_values_is_reported_as_missing(name):
    outcome = trained(name, math.nan, math.nan, extra=2.0)
    assert dict(outcome.metrics) == {"extra": 2.0}
    assert outcome.partial == {"train-loss": "0 of 2 clients"}


@pytest.mark.parametrize("name", ["fedavg", "flwr.serverapp.strategy:FedAvg"])
def test_evaluation_leaves_out_the_absurd_metric_of_a_client(name):
    """An accuracy above 1 is as absurd as NaN."""
    for bad in (math.nan, 1.5, -0.1, 1.7e308):
        strategy = strategies.build(name, {})
        replies = [
            evaluated(1, 1, loss=2.0, accuracy=0.5),
            evaluated(2, 9, loss=4.0, accuracy=bad),
            evaluated(3, 3, loss=math.nan, accuracy=0.9),
        ]
        outcome = outcome_of_evaluation(strategy, replies)
        assert dict(outcome.metrics) == pytest.approx({
            "loss": (2 + 9 * 4) / 10, "accuracy": (0.5 + 3 * 0.9) / 4,
        })  # fmt: skip
        assert outcome.partial == {"loss": "2 of 3 clients", "accuracy": "2 of 3 clients"}


@pytest.mark.parametrize("name", ["fedavg", "flwr.serverapp.strategy:FedAvg"])
def test_metric_of_a_single_client_is_not_a_metric_of_the_round(name):
    strategy = strategies.build(name, {})
    replies = [evaluated(node, 1, loss=1.0) for node in (1, 2, 3)]
    replies[0].content["metrics"]["own"] = 7.0
    outcome = outcome_of_evaluation(strategy, replies)
    assert dict(outcome.metrics) == {"loss": 1.0}
    assert outcome.partial == {}
