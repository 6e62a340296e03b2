"""FedAvg on real messages, against a float64 reference."""

import logging

import numpy as np
import pytest
from flwr.app import ConfigRecord, MetricRecord, RecordDict
from flwr.serverapp.strategy import Strategy

from strategies.fedavg import FedAvg
from strategies.limits import Limits
from tests.strategies.replies import as_numpy, cohort, failed, record, reply, reply_with

SHAPES = {"1.weight": (4, 3), "1.bias": (4,), "norm.scale": ()}


def model(seed):
    rng = np.random.default_rng(seed)
    return {name: np.asarray(rng.normal(size=shape), np.float32) for name, shape in SHAPES.items()}


def started(arrays=None, *nodes):
    """Return a strategy that has written to the nodes in round 4."""
    strategy = FedAvg()
    config = ConfigRecord({"learning-rate": 0.1})
    strategy.configure_train(4, record(arrays or model(0)), config, cohort(*nodes))
    return strategy


def assert_mean(found, models, weights):
    assert list(found) == list(SHAPES)
    for name, array in as_numpy(found).items():
        stack = np.stack([model[name] for model in models]).astype(np.float64)
        mean = np.average(stack, axis=0, weights=weights)
        assert (array.dtype, array.shape) == (np.float32, SHAPES[name])
        np.testing.assert_allclose(array, mean, rtol=1e-6, atol=1e-7)


def test_is_a_flower_strategy():
    assert issubclass(FedAvg, Strategy)


def test_configure_train_writes_to_every_node_of_the_cohort():
    arrays, config = record(model(0)), ConfigRecord({"learning-rate": 0.1, "batch-size": 10})
    messages = list(FedAvg().configure_train(4, arrays, config, cohort(30, 10, 20)))
    assert [message.metadata.dst_node_id for message in messages] == [30, 10, 20]
    for message in messages:
        assert message.metadata.message_type == "train"
        assert message.metadata.group_id == "4"
        assert set(message.content) == {"arrays", "config"}
        assert dict(message.content["config"]) == {
            "learning-rate": 0.1,
            "batch-size": 10,
            "server-round": 4,
        }
        for name, array in as_numpy(message.content["arrays"]).items():
            np.testing.assert_array_equal(array, model(0)[name], strict=True)


def test_messages_do_not_share_their_records_dictionary():
    one, other = started().configure_train(1, record(model(0)), ConfigRecord(), cohort(10, 20))
    del one.content["config"]
    assert set(other.content) == {"arrays", "config"}


def test_configure_evaluate():
    arrays, config = record(model(0)), ConfigRecord()
    messages = list(FedAvg().configure_evaluate(7, arrays, config, cohort(10, 20)))
    assert [message.metadata.dst_node_id for message in messages] == [10, 20]
    assert {message.metadata.message_type for message in messages} == {"evaluate"}
    assert {message.metadata.group_id for message in messages} == {"7"}
    assert messages[0].content["config"]["server-round"] == 7
    assert list(messages[0].content["arrays"]) == list(SHAPES)


def test_nothing_is_sent_to_an_empty_cohort():
    assert list(FedAvg().configure_train(1, record(model(0)), ConfigRecord(), cohort())) == []


def test_aggregate_train_is_the_weighted_mean():
    models, weights = [model(1), model(2), model(3)], [600, 13, 2000]
    replies = [
        reply(10 * k, arrays, weight, **{"train-loss": float(k)})
        for k, (arrays, weight) in enumerate(zip(models, weights, strict=True), start=1)
    ]
    strategy = started()
    arrays, metrics = strategy.aggregate_train(4, replies)
    assert_mean(arrays, models, weights)
    assert set(metrics) == {"train-loss"}
    assert metrics["train-loss"] == pytest.approx((600 + 2 * 13 + 3 * 2000) / 2613)
    assert strategy.rejected == {}


def test_one_poisoned_client_among_three_is_dropped_logged_and_kept(caplog):
    poisoned = model(2)
    poisoned["1.bias"][2] = np.nan
    strategy = started()
    replies = [reply(10, model(1), 1), reply(20, poisoned, 10**6), reply(30, model(3), 3)]
    with caplog.at_level(logging.WARNING, logger="fedavg_app.strategies"):
        arrays, _ = strategy.aggregate_train(4, replies)
    assert_mean(arrays, [model(1), model(3)], [1, 3])
    assert list(strategy.rejected) == [20]
    assert "NaN" in strategy.rejected[20]
    [line] = [entry.getMessage() for entry in caplog.records]
    assert line == f"round 4: reply of node 20 rejected: {strategy.rejected[20]}"


def test_no_usable_reply():
    strategy = started()
    missing = reply_with(20, RecordDict({"metrics": MetricRecord({"num-examples": 5})}))
    assert strategy.aggregate_train(4, [failed(10), missing]) == (None, None)
    assert set(strategy.rejected) == {10, 20}
    assert strategy.aggregate_train(4, []) == (None, None)
    assert strategy.rejected == {}, "the last call's only"


def test_an_update_is_what_a_client_changes():
    """The model may be large; how far a client moves it must not exceed the limit."""
    sent = {"weight": np.full((3, 4), 100, np.float32), "bias": np.full(4, -50, np.float32)}

    def moved(by):  # a norm of 4 |by|
        return {name: array + np.float32(by) for name, array in sent.items()}

    strategy = started(sent)
    strategy.limits = Limits(max_update_norm=8.5)
    replies = [reply(10, moved(2)), reply(20, moved(-2.25)), reply(30, moved(1), 3)]
    arrays, _ = strategy.aggregate_train(4, replies)
    assert strategy.rejected == {20: "the update's norm is 9, max-update-norm is 8.5"}
    for name, array in as_numpy(arrays).items():
        np.testing.assert_array_equal(array, moved(1.25)[name])


def test_a_round_with_too_few_replies_changes_nothing_for_the_next(caplog):
    strategy = started()
    strategy.limits = Limits(max_examples=1000, min_replies=2)
    replies = [reply(10, model(1), 1), reply(20, model(2), 1001), failed(30)]
    with caplog.at_level(logging.WARNING, logger="fedavg_app.strategies"):
        assert strategy.aggregate_train(4, replies) == (None, None)
    assert strategy.rejected == {
        10: "too few usable replies: 1, min-replies is 2",
        20: "num-examples is 1001, max-examples is 1000",
        30: "error 0: ZeroDivisionError: division by zero",
    }
    assert "round 4: reply of node 10 rejected: too few" in caplog.text
    assert strategy.theory_bits_up == 0
    arrays, _ = strategy.aggregate_train(4, [reply(10, model(3), 600), reply(20, model(4), 1000)])
    assert_mean(arrays, [model(3), model(4)], [600, 1000])


def test_batch_normalisation_is_averaged_too():
    """Its state dict has a 0-d int64 array, num_batches_tracked."""
    sent = {"scale": np.ones(2, np.float32), "num_batches_tracked": np.array(0)}
    replies = [
        reply(10, {"scale": np.full(2, 1, np.float32), "num_batches_tracked": np.array(4)}),
        reply(20, {"scale": np.full(2, 3, np.float32), "num_batches_tracked": np.array(8)}),
    ]
    arrays, _ = started(sent).aggregate_train(4, replies)
    found = as_numpy(arrays)
    assert found["scale"].tolist() == [2.0, 2.0]
    assert found["num_batches_tracked"].dtype == np.int64
    assert found["num_batches_tracked"].shape == ()
    assert found["num_batches_tracked"] == 6


def evaluated(node, num_examples, **metrics):
    record = MetricRecord({"num-examples": num_examples, **metrics})
    return reply_with(node, RecordDict({"metrics": record}))


def test_aggregate_evaluate_is_the_weighted_mean():
    strategy = FedAvg()
    replies = [
        evaluated(10, 1, accuracy=0.5, loss=2.0),
        evaluated(20, 3, accuracy=0.9, loss=1.0),
        evaluated(30, 0, accuracy=1.0, loss=0.0),
    ]
    metrics = strategy.aggregate_evaluate(4, replies)
    assert set(metrics) == {"accuracy", "loss", "accuracy-mean", "accuracy-p10"}
    assert metrics["accuracy-mean"] == pytest.approx(0.7)
    assert metrics["accuracy-p10"] == pytest.approx(0.54)  # a tenth of the way from 0.5 to 0.9
    assert metrics["accuracy"] == pytest.approx((0.5 + 3 * 0.9) / 4)
    assert metrics["loss"] == pytest.approx((2.0 + 3 * 1.0) / 4)
    assert list(strategy.rejected) == [30]
    assert strategy.aggregate_evaluate(5, [failed(10)]) is None


def test_evaluation_keeps_to_the_limit_of_examples_but_needs_one_reply():
    strategy = FedAvg()
    strategy.limits = Limits(max_examples=100, min_replies=3)
    replies = [evaluated(10, 100, loss=2.0), evaluated(20, 101, loss=9.0)]
    assert dict(strategy.aggregate_evaluate(4, replies)) == {"loss": 2.0}
    assert strategy.rejected == {20: "num-examples is 101, max-examples is 100"}


@pytest.mark.parametrize("lies", [(1.7e308, 1.7e308), (1.7e308, -1.7e308), (0.5, 1.5), (0.5, -0.1)])
def test_accuracies_that_are_none_have_no_spread(lies):
    strategy = FedAvg()
    metrics = strategy.aggregate_evaluate(
        1, [evaluated(node, 1, accuracy=lie) for node, lie in enumerate(lies, 1)]
    )
    assert "accuracy-p10" not in metrics
    assert "accuracy-mean" not in metrics


def test_client_mod_calls_the_clients_handler():
    sent, answered = reply(10, model(0)), reply(10, model(1))
    calls = []

    def handler(message, context):
        calls.append((message, context))
        return answered

    assert FedAvg.client_mod(sent, None, handler) is answered
    assert calls == [(sent, None)]


def test_summary_says_what_it_is(caplog):
    with caplog.at_level(logging.INFO, logger="fedavg_app.strategies"):
        FedAvg().summary()
    assert "FedAvg" in caplog.text
    assert "\n" not in caplog.records[0].getMessage()
