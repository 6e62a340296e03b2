"""The runner of a strategy: messages, the steps of a round, what is rejected and logged."""

import logging
import pickle

import numpy as np
import pytest
import torch
from flwr.app import ConfigRecord, Error

import strategies
from fedavg_app.server.client_sampling import CohortGrid
from strategies.base import Ask, FederatedStrategy
from strategies.rounds.exchange import MAX_LOGGED_TRACEBACKS, Exchange
from strategies.rounds.runner import StrategyError
from strategies.rounds.strategy_runner import StrategyRunner
from strategies.rounds.values import ReplyBounds, RunSettings
from tests.support.replies import (
    cohort,
    evaluated,
    failed,
    outcome_of_evaluation,
    reasons,
    record,
    reply,
    reply_with,
)

pytestmark = pytest.mark.usefixtures("server_identity")

SHAPES = {"1.weight": (4, 3), "1.bias": (4,), "norm.scale": ()}
SIZE = 4 * 3 + 4 + 1


def model(seed):
    rng = np.random.default_rng(seed)
    return {name: np.asarray(rng.normal(size=shape), np.float32) for name, shape in SHAPES.items()}


class Recorder(FederatedStrategy):
    """Recorder: takes the clients' mean, and notes its steps.

    A second paragraph.
    """

    def __init__(self) -> None:
        super().__init__()
        self.steps = []
        self.result = np.ones(1, np.float32)

    def read(self, now, reply):
        self.steps.append(("read", reply.node))
        return (reply.vector,)

    def step(self, now, aggregate):
        self.steps.append(("step", aggregate.nodes, aggregate.mean.tolist()))
        return self.result

    def on_rejected(self, now, node, error):
        self.steps.append(("rejected", node, str(error)))


ZERO = np.zeros(1, np.float32)


def recorder(min_replies=1, start=ZERO):
    runner = StrategyRunner(Recorder(), RunSettings(min_replies=min_replies))
    runner.configure_train(1, record({"w": start}), ConfigRecord(), cohort())
    return runner


def arriving(runner, *replies):
    """Yield replies as they come, and note in the strategy's steps when."""
    for message in replies:
        runner.strategy.steps.append(("arrives", message.metadata.src_node_id))
        yield message


VALID = {"w": np.ones(1, np.float32)}


def test_replies_are_read_as_they_come_and_then_the_strategy_steps():
    runner = recorder()
    replies = [reply(10, VALID, 3), evaluated(20, 9), reply(30, {"w": np.full(1, 5, "f4")}, 1)]
    outcome = runner.finish_round(arriving(runner, *replies))
    assert runner.strategy.steps == [
        ("arrives", 10),
        ("read", 10),
        ("arrives", 20),
        ("read", 20),
        ("rejected", 20, "no ArrayRecord 'arrays'"),
        ("arrives", 30),
        ("read", 30),
        ("step", [10, 30], [2.0]),
    ]
    assert outcome.model["w"].numpy().tolist() == [1.0]
    assert reasons(outcome) == {20: "no ArrayRecord 'arrays'"}


def test_round_with_fewer_than_min_replies_has_no_step():
    runner = recorder(min_replies=3)
    replies = [reply(10, VALID, 3), reply(20, VALID, 4), failed(30)]
    outcome = runner.finish_round(replies)
    assert (outcome.model, outcome.metrics) == (None, None)
    assert runner.strategy.steps == [("read", 10), ("read", 20)]
    assert outcome.formula_bits_up == 0
    assert reasons(outcome)[10] == "too few usable replies: 2, min-replies is 3"
    # Nothing of it is left in the next round.
    runner.configure_train(2, record({"w": ZERO}), ConfigRecord(), cohort())
    replies = [reply(node, {"w": np.zeros(1, np.float32)}) for node in (1, 2, 3)]
    runner.finish_round(replies)
    assert runner.strategy.steps[-1] == ("step", [1, 2, 3], [0.0])


def test_model_that_is_not_finite_is_discarded():
    runner = recorder()
    runner.strategy.result = np.full(1, np.nan, np.float32)
    outcome = runner.finish_round([reply(10, VALID, 3), reply(20, VALID, 4)])
    assert outcome.model is None
    assert outcome.formula_bits_up == 0
    assert set(reasons(outcome)) == {10, 20}
    assert "'w' of the next model would have NaN or infinite values" in reasons(outcome)[10]


def test_infinities_of_the_sent_model_are_accepted_in_replies():
    runner = recorder(start=np.array([0, -np.inf], np.float32))
    runner.strategy.result = np.array([1, -np.inf], np.float32)
    outcome = runner.finish_round([reply(10, {"w": np.array([3, -np.inf], np.float32)}, 3)])
    assert outcome.model["w"].numpy().tolist() == [1.0, -np.inf]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_model_keeps_its_dtype_whatever_the_strategy_returns(dtype):
    expected = np.array([1 / 3], dtype)
    for result in (np.full(1, 1 / 3), torch.full((1,), 1 / 3, dtype=torch.float64)):
        runner = recorder(start=np.zeros(1, dtype))
        runner.strategy.result = result
        outcome = runner.finish_round([reply(10, {"w": np.ones(1, dtype)})])
        np.testing.assert_array_equal(outcome.model["w"].numpy(), expected, strict=True)


def test_vector_of_another_size_ends_the_run():
    runner = recorder()
    runner.strategy.result = np.ones(2, np.float32)
    with pytest.raises(StrategyError, match=r"step returned \[2\], not \[1\]"):
        runner.finish_round([reply(10, VALID, 3)])


def test_second_reply_of_a_node_is_rejected():
    runner = recorder()
    replies = [reply(7, VALID, 1), reply(7, VALID, 100), reply(8, VALID, 10)]
    outcome = runner.finish_round(replies)
    assert runner.strategy.steps[-1][1] == [7, 8]
    assert reasons(outcome) == {7: "a second reply from the same node"}


def test_error_that_is_not_a_reply_error_is_raised():
    """A bug of the strategy itself must not look like a bad client."""

    class Broken(Recorder):
        def read(self, now, reply):
            raise KeyError("bug")

    runner = StrategyRunner(Broken())
    runner.configure_train(1, record(VALID), ConfigRecord(), cohort())
    with pytest.raises(KeyError):
        runner.finish_round([reply(1, VALID)])


@pytest.mark.parametrize("name", ["fedavg", "fedsgd", "fednova", "scaffold", "stc"])
def test_reply_that_is_rejected_changes_nothing_in_the_strategy(name):
    runner = strategies.build(name, {})
    config = ConfigRecord({"learning-rate": 0.1, "batch-size": 10})
    runner.configure_train(1, record(model(0)), config, cohort(10, 20))
    poisoned = {key: array * np.float32(np.nan) for key, array in model(1).items()}
    bad = [reply(10, {"w": np.ones(1)}), reply(20, poisoned), evaluated(30, 1)]
    before = pickle.dumps(runner)
    assert len(runner.finish_round(bad).rejected) == 3
    assert pickle.dumps(runner) == before


# Rounds of several exchanges.


class LargestLoss(Recorder):
    """LargestLoss: the two clients with the largest losses train."""

    def exchanges(self, now, nodes):
        losses = {}

        def read_loss(now, reply):
            losses[reply.node] = reply.report.metrics["loss"]
            return ()

        yield Ask(nodes, "evaluate", self.broadcast, read_loss)
        chosen = sorted(losses, key=losses.get)[-2:]
        aggregate = yield Ask(chosen, "train", self.broadcast, self.read)
        return self.step(now, aggregate)


class AnsweringGrid(CohortGrid):
    """Clients' losses are their nodes' numbers; node 4 fails."""

    def send_and_receive(self, messages, *, timeout=None):
        nodes = [message.metadata.dst_node_id for message in messages]
        return [failed(4) if node == 4 else evaluated(node, 1, loss=float(node)) for node in nodes]


def test_clients_are_chosen_by_their_loss_under_flowers_start():
    strategy = LargestLoss()
    grid = AnsweringGrid(None, [1, 2, 3, 4])
    messages = strategy.configure_train(1, record({"w": ZERO}), ConfigRecord(), grid)
    assert sorted(message.metadata.dst_node_id for message in messages) == [2, 3]
    assert {message.metadata.message_type for message in messages} == {"train"}
    arrays, _ = strategy.aggregate_train(1, [reply(2, VALID), reply(3, {"w": np.full(1, 4, "f4")})])
    assert strategy.steps[-1] == ("step", [2, 3], [2.5])
    assert arrays["w"].numpy().tolist() == [1.0]


def test_round_of_several_exchanges_has_the_rejected_replies_of_all():
    runner = StrategyRunner(LargestLoss(), RunSettings(min_replies=2))
    runner.configure_train(1, record({"w": ZERO}), ConfigRecord(), AnsweringGrid(None, [2, 3, 4]))
    outcome = runner.finish_round([reply(2, VALID), evaluated(3, 1)])
    assert outcome.model is None
    assert reasons(outcome) == {
        2: "too few usable replies: 1, min-replies is 2",
        3: "no ArrayRecord 'arrays'",
        4: "ZeroDivisionError: division by zero",
    }


# Messages.


def test_uncompressed_traffic_counts_32_bits_an_entry():
    strategy = strategies.build("fedavg", {})
    strategy.configure_train(1, record(model(0)), ConfigRecord(), cohort(10, 20, 30))
    outcome = strategy.finish_round([reply(10, model(1)), failed(20), reply(30, model(2))])
    assert outcome.formula_bits_down == 3 * 32 * SIZE
    assert outcome.formula_bits_up == 2 * 32 * SIZE


# Evaluation.


def test_evaluation_bounds_examples_but_needs_only_one_reply():
    settings = RunSettings(min_replies=3, bounds=ReplyBounds(max_examples=100))
    strategy = strategies.build("fedavg", {}, settings)
    replies = [evaluated(10, 100, loss=2.0), evaluated(20, 101, loss=9.0)]
    outcome = outcome_of_evaluation(strategy, replies)
    assert dict(outcome.metrics) == {"loss": 2.0}
    assert reasons(outcome) == {20: "num-examples is 101, max-examples is 100"}
    assert outcome_of_evaluation(strategy, [failed(10)]).metrics is None


# The client's end, and logging.


@pytest.fixture(autouse=True)
def no_traceback_logged(monkeypatch):
    monkeypatch.setattr(Exchange, "logged", set())


def tracebacks(caplog, *errors):
    """Return the messages that start "node", after a round of clients with these errors."""
    caplog.clear()
    with caplog.at_level(logging.DEBUG, logger="fedavg_app.strategies"):
        recorder().finish_round(
            [reply_with(node, Error(0, text)) for node, text in enumerate(errors, 1)]
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
    assert len(tracebacks(caplog, TRACEBACK, TRACEBACK + "\n")) == 1
    assert tracebacks(caplog, TRACEBACK) == []
    distinct = [f"{TRACEBACK} {number}" for number in range(MAX_LOGGED_TRACEBACKS + 5)]
    assert len(tracebacks(caplog, *distinct)) == MAX_LOGGED_TRACEBACKS - 1
