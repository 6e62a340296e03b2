"""`FederatedStrategy`: messages, and the four steps of a round."""

import logging
import pickle

import numpy as np
import pytest
from flwr.app import ConfigRecord, Error, RecordDict

import strategies
from strategies.base import (
    MAX_LOGGED_TRACEBACKS,
    FederatedStrategy,
    RunSettings,
    StrategyError,
    model_bits,
)
from strategies.fedavg import FedAvg
from strategies.reply_validation import ClientReport, ClientUpdate, ReplyBounds, ReplyError
from tests.support.replies import cohort, evaluated, failed, reasons, record, reply, reply_with

pytestmark = pytest.mark.usefixtures("server_identity")

SHAPES = {"1.weight": (4, 3), "1.bias": (4,), "norm.scale": ()}
SIZE = 4 * 3 + 4 + 1


def model(seed):
    rng = np.random.default_rng(seed)
    return {name: np.asarray(rng.normal(size=shape), np.float32) for name, shape in SHAPES.items()}


class Recorder(FederatedStrategy[float]):
    """Recorder: adds up the replies' numbers of examples, and notes its steps.

    A second paragraph.
    """

    def __init__(self) -> None:
        super().__init__()
        self.steps = []
        self.total = 0.0
        self.result = {"w": np.ones(1, np.float32)}

    def validate(self, reply):
        self.steps.append(("validate", reply.metadata.src_node_id))
        if "arrays" not in reply.content:
            raise ReplyError("no arrays")
        report = ClientReport(reply.metadata.src_node_id, 2.0, {"loss": 1.0})
        return ClientUpdate(report, float(reply.content["metrics"]["num-examples"]))

    def accumulate(self, update):
        self.steps.append(("accumulate", update.report.node_id, update.content))
        self.total += update.content

    def finalize(self, model):
        self.steps.append(("finalize", {name: array.tolist() for name, array in model.items()}))
        return self.result

    def reset(self):
        self.steps.append("reset")
        self.total = 0.0

    def on_rejected(self, node_id, error):
        self.steps.append(("rejected", node_id, str(error)))


def recorder(min_replies=1):
    strategy = Recorder()
    strategy.settings = RunSettings(min_replies=min_replies)
    strategy.configure_train(1, record({"w": np.zeros(1, np.float32)}), ConfigRecord(), cohort())
    return strategy


def arriving(strategy, *replies):
    """Yield replies as they come, and note in the strategy's steps when."""
    for one in replies:
        strategy.steps.append(("arrives", one.metadata.src_node_id))
        yield one


VALID = {"w": np.ones(1, np.float32)}


def test_replies_are_validated_and_accumulated_as_they_come_and_then_finalized():
    strategy = recorder()
    replies = [reply(10, VALID, 3), evaluated(20, 9), reply(30, VALID, 4)]
    asked = []
    outcome = strategy.finish_round(1, arriving(strategy, *replies), asked.append)
    assert strategy.steps == [
        "reset",
        ("arrives", 10),
        ("validate", 10),
        ("accumulate", 10, 3.0),
        ("arrives", 20),
        ("validate", 20),
        ("rejected", 20, "no arrays"),
        ("arrives", 30),
        ("validate", 30),
        ("accumulate", 30, 4.0),
        ("finalize", {"w": [0.0]}),
        "reset",
    ]
    assert outcome.model["w"].numpy().tolist() == [1.0]
    assert dict(outcome.metrics) == {"loss": 1.0}
    assert reasons(outcome) == {20: "no arrays"}
    assert asked == [20]


def test_round_with_fewer_than_min_replies_is_reset_and_not_finalized():
    strategy = recorder(min_replies=3)
    replies = [reply(10, VALID, 3), reply(20, VALID, 4), failed(30)]
    outcome = strategy.finish_round(1, replies)
    assert (outcome.model, outcome.metrics) == (None, None)
    assert strategy.steps == [
        "reset",
        ("validate", 10),
        ("accumulate", 10, 3.0),
        ("validate", 20),
        ("accumulate", 20, 4.0),
        "reset",
    ]
    assert strategy.total == 0
    assert outcome.formula_bits_up == 0
    assert reasons(outcome)[10] == "too few usable replies: 2, min-replies is 3"


def test_model_that_is_not_finite_is_not_taken():
    strategy = recorder()
    strategy.result = {"w": np.full(1, np.nan, np.float32)}
    outcome = strategy.finish_round(1, [reply(10, VALID, 3), reply(20, VALID, 4)])
    assert outcome.model is None
    assert strategy.steps[-1] == "reset"
    assert outcome.formula_bits_up == 0
    assert set(reasons(outcome)) == {10, 20}
    assert "'w' of the next model would have NaN or infinite values" in reasons(outcome)[10]


def test_infinities_that_were_sent_may_come_back():
    strategy = recorder()
    mask = {"w": np.array([0, -np.inf], np.float32)}
    strategy.configure_train(1, record(mask), ConfigRecord(), cohort())
    strategy.result = {"w": np.array([1, -np.inf], np.float32)}
    outcome = strategy.finish_round(1, [reply(10, VALID, 3)])
    assert outcome.model["w"].numpy().tolist() == [1.0, -np.inf]


@pytest.mark.parametrize(
    ("result", "found"),
    [
        ({"w": np.ones(1)}, r"'w' .* is float64 \(1,\), not float32 \(1,\)"),
        ({"w": np.ones(2, np.float32)}, r"is float32 \(2,\), not"),
        ({}, r"'w' .* is missing, not float32"),
        ({"w": np.ones(1, np.float32), "v": np.ones(1)}, r"'v' .* is float64 \(1,\), not missing"),
    ],
)
def test_model_of_another_form_ends_the_run(result, found):
    strategy = recorder()
    strategy.result = result
    with pytest.raises(StrategyError, match=found):
        strategy.finish_round(1, [reply(10, VALID, 3)])


def test_second_reply_of_a_node_is_rejected():
    strategy = recorder()
    replies = [reply(7, VALID, 1), reply(7, VALID, 100), reply(8, VALID, 10)]
    outcome = strategy.finish_round(1, replies)
    accumulated = [step for step in strategy.steps if step[0] == "accumulate"]
    assert accumulated == [("accumulate", 7, 1.0), ("accumulate", 8, 10.0)]
    assert reasons(outcome) == {7: "a second reply from the same node"}


def test_error_that_is_not_a_reply_error_is_raised():
    """A bug of the strategy itself must not look like a bad client."""

    class Broken(Recorder):
        def validate(self, reply):
            raise KeyError("bug")

    with pytest.raises(KeyError):
        Broken().aggregate_train(1, [reply(1, VALID)])


# Pure validation.


def invalid_copies(good):
    """Return copies of a reply that lack a record each, and one that counts no examples."""
    node, records = good.metadata.src_node_id, dict(good.content)
    lacking = [{key: records[key] for key in records if key != name} for name in records]
    last = list(records)[-1]
    none = {**records, last: type(records[last])({**records[last], "num-examples": 0})}
    return [reply_with(node, RecordDict(content)) for content in [*lacking, none]]


@pytest.mark.parametrize(
    ("name", "arguments"), [("fedavg", {}), ("fedsgd", {}), ("flwr.serverapp.strategy:FedAdam", {})]
)
def test_validate_changes_nothing_in_an_uncompressed_strategy(name, arguments):
    strategy = strategies.build(name, arguments)
    config = ConfigRecord({"learning-rate": 0.1})
    strategy.configure_train(1, record(model(0)), config, cohort(10, 20))
    good = reply(10, model(1), 5)
    before = pickle.dumps(strategy)
    first = strategy.validate(good)
    assert strategy.validate(good).report == first.report
    poisoned = {key: array * np.float32(np.nan) for key, array in model(1).items()}
    others = [reply(10, {"w": np.ones(1)}), reply(10, poisoned), evaluated(10, 1)]
    for bad in [*invalid_copies(good), *others]:
        with pytest.raises(ReplyError):
            strategy.validate(bad)
    assert pickle.dumps(strategy) == before
    strategy.accumulate(first)
    assert pickle.dumps(strategy) != before, "pickles show what changes"


# Messages.


def test_uncompressed_traffic_counts_32_bits_an_entry():
    strategy = FedAvg()
    assert model_bits(record(model(0))) == 32 * SIZE
    messages = strategy.configure_train(1, record(model(0)), ConfigRecord(), cohort(10, 20, 30))
    assert strategy.round_bits(messages) == 3 * 32 * SIZE
    replies = [reply(10, model(1)), failed(20), reply(30, model(2))]
    assert strategy.finish_round(1, replies).formula_bits_up == 2 * 32 * SIZE


# Evaluation.


def test_aggregate_evaluate_returns_weighted_means_and_the_spread():
    strategy = FedAvg()
    replies = [
        evaluated(10, 1, accuracy=0.5, loss=2.0),
        evaluated(20, 3, accuracy=0.9, loss=1.0),
        evaluated(30, 0, accuracy=1.0, loss=0.0),
    ]
    outcome = strategy.finish_evaluation(4, replies)
    metrics = outcome.metrics
    assert set(metrics) == {"accuracy", "loss", "accuracy-mean", "accuracy-p10"}
    assert metrics["accuracy-mean"] == pytest.approx(0.7)
    assert metrics["accuracy-p10"] == pytest.approx(0.54)  # a tenth of the way from 0.5 to 0.9
    assert metrics["accuracy"] == pytest.approx((0.5 + 3 * 0.9) / 4)
    assert metrics["loss"] == pytest.approx((2.0 + 3 * 1.0) / 4)
    assert list(outcome.rejected) == [30]
    assert strategy.aggregate_evaluate(5, [failed(10)]) is None


def test_evaluation_has_the_bound_of_examples_but_needs_one_reply_only():
    strategy = FedAvg()
    strategy.settings = RunSettings(min_replies=3, bounds=ReplyBounds(max_examples=100))
    replies = [evaluated(10, 100, loss=2.0), evaluated(20, 101, loss=9.0)]
    outcome = strategy.finish_evaluation(4, replies)
    assert dict(outcome.metrics) == {"loss": 2.0}
    assert reasons(outcome) == {20: "num-examples is 101, max-examples is 100"}


# The client's end, and logging.


def tracebacks(caplog, *errors, strategy=None):
    """Return the warnings that start "node", after a round of clients with these errors."""
    strategy = strategy or FedAvg()
    caplog.clear()
    with caplog.at_level(logging.DEBUG, logger="fedavg_app.strategies"):
        strategy.aggregate_train(
            1, [reply_with(node, Error(0, text)) for node, text in enumerate(errors, 1)]
        )
    lines = [entry.getMessage() for entry in caplog.records]
    return [line for line in lines if line.startswith("node ")]


TRACEBACK = 'Traceback (most recent call last):\n  File "task.py", line 3\nValueError: shape'


@pytest.mark.parametrize("line_break", ["\n", "\r\n", "\r", "\x0b", "\u2028"])
def test_lines_of_a_traceback_are_indented_so_that_none_is_a_log_line(caplog, line_break):
    (logged,) = tracebacks(
        caplog, f"Traceback{line_break}round 1: reply of node 7 rejected: forged"
    )
    assert logged.split("\n") == [
        "node 1 failed:", "    Traceback", "    round 1: reply of node 7 rejected: forged",
    ]  # fmt: skip


def test_same_traceback_is_logged_once_and_they_are_bounded_in_number(caplog):
    strategy = FedAvg()
    assert len(tracebacks(caplog, TRACEBACK, TRACEBACK + "\n", strategy=strategy)) == 1
    assert tracebacks(caplog, TRACEBACK, strategy=strategy) == []
    distinct = [f"{TRACEBACK} {number}" for number in range(MAX_LOGGED_TRACEBACKS + 5)]
    found = tracebacks(caplog, *distinct, strategy=strategy)
    assert len(found) == MAX_LOGGED_TRACEBACKS - 1
