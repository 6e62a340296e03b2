"""The training loop with the real ClientApp on real data, in one process."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from flwr.app import Array, MetricRecord, RecordDict

import tasks
from fedavg_app.errors import DivergedError, NoRepliesError
from fedavg_app.flower_internals import error_reply
from fedavg_app.partitioning import partition
from fedavg_app.server.client_sampling import sample_clients
from fedavg_app.training_plan import TrainingPlan
from strategies.base import change_norm
from strategies.fedavg import FedAvg
from tasks.training.local_training import TaskClient
from tests.support.in_process import (
    make_config,
    model_arrays,
    round_of_algorithm_1,
    same_model,
    train,
)
from tests.support.local_grid import LocalGrid
from tests.support.one_line import one_line
from tests.support.rounding import assert_same_change

FLOWER = "flwr.serverapp.strategy"


def cohort(server_round, size=5, purpose="train", seed=1):
    """Return the clients, of 20, that take part in a round."""
    return sample_clients(seed, server_round, purpose, size, range(20))


def initial_arrays():
    model = tasks.load("mnist-logistic").initial_model(1)
    return [value.numpy().copy() for value in model.state_dict().values()]


def test_fedavg_is_algorithm_1_of_the_paper():
    """Against Algorithm 1 written out: the cohorts, the local SGD, the weighted mean."""
    _, result = train(local_epochs=2)
    config = make_config(local_epochs=2)
    task = tasks.load("mnist-logistic")
    data = task.dataset(config.data_options)
    parts = partition(data, "train", make_config(partition="shards", num_clients=20, seed=1))
    weights = initial_arrays()
    told = {"learning-rate": 0.05, "local-epochs": 2, "batch-size": 10, "seed": 1}
    for server_round in range(1, 5):
        splits = {k: data.train.part(parts[k]) for k in cohort(server_round)}
        weights = round_of_algorithm_1(
            task, weights, splits, {**told, "server-round": server_round}
        )
    assert_same_change(model_arrays(result), weights, initial_arrays())


def test_fedsgd_equals_fedavg_with_one_full_batch_step():
    """Both are a step of gradient descent on the participants' data (C = 1, E = 1, B = all)."""
    rounds = {"fraction_train": 1.0, "num_server_rounds": 8, "learning_rate": 0.2}
    _, sgd = train(strategy="fedsgd", **rounds)
    _, avg = train(strategy="fedavg", batch_size=0, **rounds)
    assert_same_change(model_arrays(sgd), model_arrays(avg), initial_arrays())
    assert sgd.history[-1].accuracy > sgd.history[0].accuracy + 0.1


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("FedAdam", "eta = 0.01, tau = 0.001"), ("Krum", "num_malicious_nodes = 1"),
        ("FedProx", "proximal_mu = 0.1"),
    ],
)  # fmt: skip
def test_flowers_own_strategies_learn_from_the_sampled_cohort(name, arguments):
    # Krum takes one client's model: with one or two classes a client that is no model of all ten.
    keys = {"strategy_args": arguments, "num_server_rounds": 8, "partition": "iid"}
    grid, result = train(strategy=f"{FLOWER}:{name}", **keys)
    trained = [number for kind, number in grid.log if kind == "train"]
    assert [sorted(trained[5 * t : 5 * t + 5]) for t in range(8)] == [*map(cohort, range(1, 9))]
    assert result.history[-1].test_loss < result.history[0].test_loss
    assert {array.dtype for array in result.model.values()} == {"float32"}


def fill(value, shape=None):
    """Return a function that fills the first array of a reply, and may change its shape."""

    def tamper(reply):
        arrays = reply.content["arrays"]
        name = next(iter(arrays))
        arrays[name] = Array(np.full(shape or arrays[name].shape, value, np.float32))
        return reply

    return tamper


def stating(count):

    def tamper(reply):
        reply.content["metrics"] = MetricRecord({"num-examples": count})
        return reply

    return tamper


def fail(reply):
    reply.__dict__["_content"] = None
    reply.error = error_reply(reply, "Traceback\nKeyError: 'x'").error
    return reply


def no_reply(reply):
    return None


BAD_REPLIES = {
    "error": (fail, "KeyError: 'x'"), "nan": (fill(np.nan), "NaN"),
    "shape": (fill(0, shape=3), "expected"), "no examples": (stating(0), "at least 1"),
    "no reply": (no_reply, "no reply in time"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "strategy"),
    [
        *product(BAD_REPLIES, ["fedavg", f"{FLOWER}:FedAdam"]),
        *product(["nan"], ["fedsgd", "scaffold", "fednova"]),
    ],
)
def test_bad_reply_is_rejected_counted_and_logged_and_the_run_continues(
    kind, strategy, caplog, clock
):
    tamper, reason = BAD_REPLIES[kind]
    client = cohort(1)[2]
    timeout = 5.0 if kind == "no reply" else 0.0
    grid, result = train(
        {client: tamper}, strategy=strategy, num_server_rounds=2, round_timeout=timeout
    )
    metrics = result.history[1]
    node = grid.node(client)
    assert set(metrics.rejected) == {node}
    assert reason in metrics.rejected[node]
    assert "\n" not in metrics.rejected[node]
    assert metrics.participants == 5
    assert all(np.isfinite(array).all() for array in model_arrays(result))
    if kind != "no reply":
        assert f"reply of node {node} rejected" in caplog.text


def train_without_replies(tamper, error, **changes):
    """Run three rounds without a valid reply; return the error and the history so far."""
    history = []
    with one_line(error) as caught:
        train(tamper, on_round_end=lambda metrics, model: history.append(metrics), **changes)
    assert type(caught.value) is error
    assert str(caught.value).startswith("no usable reply in 3 rounds in a row: ")
    assert [metrics.round for metrics in history] == [0, 1, 2, 3]
    return str(caught.value), history


def everyone(tamper):
    return dict.fromkeys(range(20), tamper)


@pytest.mark.parametrize(
    "strategy", ["fedavg", "fedsgd", "flwr.serverapp.strategy:FedAdam", "stc", "topk", "signsgd"]
)
def test_run_with_much_too_large_a_learning_rate_ends_as_diverged(strategy, monkeypatch):
    """Compressed strategies' clients say so in their replies, others send what they have."""
    monkeypatch.setattr(TrainingPlan, "rate", lambda plan, server_round: 1e38)
    compressed = strategy in ("stc", "topk", "signsgd")
    # FedSGD's clients send gradients, which are infinite only if the model is.
    tamper = everyone(fill(np.nan)) if strategy == "fedsgd" else {}
    error, history = train_without_replies(tamper, DivergedError, strategy=strategy)
    assert ("the client's training diverged" if compressed else "infinite") in error
    assert error.endswith("; give a smaller learning-rate")
    assert all(len(metrics.rejected) == 5 for metrics in history[1:])


@pytest.mark.parametrize(
    ("tamper", "reason"),
    [
        (everyone(fail), "KeyError: 'x'"),
        (everyone(fill(0, shape=3)), "expected float32"),
        (everyone(stating(0)), "at least 1"),
        (everyone(no_reply), ": no reply in time"),
        # A reply that is invalid for another reason: this is no divergence.
        (everyone(fill(np.nan)) | {cohort(3)[0]: fail}, "NaN"),
    ],
    ids=["error", "shape", "examples", "none", "one of another kind"],
)
def test_run_without_a_valid_reply_ends_without_replies(tamper, reason, clock):
    error, _ = train_without_replies(tamper, NoRepliesError, round_timeout=5.0)
    assert reason in error
    assert error.endswith("; run.log has all reasons and tracebacks")


def losing(numbers):
    """Return a function that turns this many of a round's five replies into errors."""
    replies = []

    def tamper(reply):
        round_number, place = divmod(len(replies), 5)
        replies.append(reply)
        return fail(reply) if place < numbers[round_number] else reply

    return everyone(tamper)


@pytest.mark.parametrize(
    ("numbers", "reason"),
    [
        ([0, 0, 5], "no usable reply in round 3: "),
        ([0, 5, 5], "no usable reply in 2 rounds in a row: "),
        ([0, 3, 3, 3], "most replies were rejected in 3 rounds in a row: "),
        ([3], "most replies were rejected in round 1: "),
        ([3, 4, 3], "most replies were rejected in 3 rounds in a row: "),
    ],
)
def test_run_whose_last_rounds_lost_most_of_their_clients_fails(numbers, reason):
    history = []
    keep = lambda metrics, model: history.append(metrics)  # noqa: E731
    with pytest.raises(NoRepliesError, match=reason):
        train(losing(numbers), num_server_rounds=len(numbers), on_round_end=keep)
    assert len(history) == 1 + len(numbers)


@pytest.mark.parametrize("numbers", [[5, 0], [3, 3, 2], [0, 0, 3], [2, 2, 2]])
def test_run_that_lost_clients_for_a_while_or_a_few_succeeds(numbers):
    _, result = train(losing(numbers), num_server_rounds=len(numbers))
    assert [len(metrics.rejected) for metrics in result.history] == [0, *numbers]


def test_run_that_reaches_its_target_succeeds_though_its_last_round_has_no_reply():
    """The test after that round is of the model of the round before."""
    keys = {"num_server_rounds": 4, "evaluate_every": 2, "target": "0.01"}
    _, result = train(losing([0, 5]), **keys)
    assert [len(metrics.rejected) for metrics in result.history] == [0, 0, 5]


@pytest.mark.parametrize("rounds", [1, 4])
def test_clients_that_never_answer_do_not_fail_a_run_whose_others_train(rounds, clock):
    """As devices with registered keys that are switched off: here 17 of 20."""
    silent = dict.fromkeys(range(3, 20), no_reply)
    keys = {"fraction_train": 1.0, "num_server_rounds": rounds, "round_timeout": 5.0}
    grid, result = train(silent, **keys)
    for metrics in result.history[1:]:
        assert metrics.rejected == {grid.node(client): "no reply in time" for client in silent}
    # Useless replies count, and the line names only what is wrong with these.
    with pytest.raises(NoRepliesError, match=r"rejected in .*: KeyError: 'x'; run.log"):
        train({**silent, 1: fail, 2: fail}, **keys)


class StateLosingGrid(LocalGrid):
    """All clients lose their state before round 20."""

    def push_messages(self, messages):
        messages = list(messages)
        if any(m.content["config"].get("server-round") == 20 for m in messages if m.content):
            for context in self.contexts.values():
                context.state = RecordDict()
        return super().push_messages(messages)


def test_run_survives_that_all_clients_lose_their_state():
    """With one client a round, more rounds in a row ask for the model than would end a run."""
    _, result = train(
        grid_type=StateLosingGrid, strategy="stc", num_clients=4, partition="iid",
        fraction_train=0.0, num_server_rounds=40, local_steps=1, evaluate_every=40,
    )  # fmt: skip
    resyncing = [metrics.round for metrics in result.history if metrics.rejected]
    assert resyncing[:2] == [20, 21]
    assert len(result.history) == 41


def test_training_stops_at_the_target():
    _, result = train(num_server_rounds=50, fraction_train=1.0, target=0.6)
    accuracies = [metrics.accuracy for metrics in result.history]
    assert accuracies[-1] >= 0.6 > max(accuracies[:-1])
    assert len(result.history) < 51


def test_model_is_tested_every_n_rounds_and_after_the_last():
    _, result = train(num_server_rounds=5, evaluate_every=2)
    tested = [metrics.round for metrics in result.history if metrics.accuracy is not None]
    assert tested == [0, 2, 4, 5]


def test_clients_evaluate_on_their_own_test_data():
    grid, result = train(fraction_evaluate=0.5, num_server_rounds=2)
    evaluated = [number for kind, number in grid.log if kind == "evaluate"]
    assert evaluated == cohort(1, 10, "evaluate") + cohort(2, 10, "evaluate")
    metrics = result.history[-1].client_metrics
    assert set(metrics) == {"loss", "accuracy", "accuracy-mean", "accuracy-p10"}
    assert metrics["accuracy-p10"] < metrics["accuracy-mean"]
    assert 0 <= metrics["accuracy"] <= 1


@pytest.mark.parametrize("strategy", ["fedavg", "stc", "flwr.serverapp.strategy:FedAdam"])
def test_non_finite_metric_of_a_client_is_left_out_of_the_mean(strategy, monkeypatch):
    test, evaluating = TaskClient.test, cohort(1, purpose="evaluate")

    def without_loss(client, *given):
        (result,) = test(client, *given)
        return [result._replace(loss=np.nan) if client.partition == evaluating[1] else result]

    def spoil(reply):
        for record in reply.content.values():  # "metrics", or the record of a compressed reply
            if "train-loss" in record:
                record["train-loss"] = np.nan
        return reply

    monkeypatch.setattr(TaskClient, "test", without_loss)
    keys = {"strategy": strategy, "num_server_rounds": 1, "fraction_evaluate": 0.25}
    _, result = train({cohort(1)[2]: spoil}, **keys)
    metrics = result.history[1]
    assert np.isfinite(metrics.train_loss)
    assert np.isfinite(metrics.client_metrics["loss"])
    number = "4 of 5 clients"
    assert metrics.partial == {"train_loss": number, "client_metrics.loss": number}
    assert not metrics.rejected


@pytest.mark.parametrize("strategy", ["fedavg", "fedsgd"])
def test_momentum_and_weight_decay_reach_the_clients(strategy):
    """test_local_training.py compares their effect with formulas."""

    def norm(**changes):
        keys = {"fraction_train": 1.0, "num_server_rounds": 3, "learning_rate": 0.1, **changes}
        _, result = train(strategy=strategy, **keys)
        return float(np.sqrt(sum(np.square(array).sum() for array in model_arrays(result))))

    assert norm(weight_decay=1.0) < 0.9 * norm() < 0.8 * norm(momentum=0.9)


def test_over_selection_takes_the_first_replies_that_are_enough():
    """C = 0.25 of 20 is 5; with half as many again, 8 are sent messages and answer one by one."""
    grid, result = train(over_selection=0.5, num_server_rounds=2, evaluate_every=2)
    first, second = cohort(1, 8), cohort(2, 8)
    assert [number for kind, number in grid.log if kind == "train"] == first + second
    assert [metrics.participants for metrics in result.history] == [0, 8, 8]
    assert [metrics.rejected for metrics in result.history] == [{}, {}, {}]
    # The last sent answers first: the mean is that of clients 3 to 7, whose bytes alone count.
    fewer = dict.fromkeys(first[:3] + second[:3], no_reply)
    _, expected = train(fewer, over_selection=0.5, num_server_rounds=2, evaluate_every=2)
    assert same_model(result, expected)
    dense = 7850 * 4 * 5
    assert dense < result.history[1].bytes_up < dense * 1.1
    # The next round fetches what came too late, and drops it.
    assert len(grid._replies) == 3


@pytest.mark.parametrize(
    ("ours", "flowers", "arguments"),
    [
        (
            "{name = 'adam', learning-rate = 0.05, beta-1 = 0.8, beta-2 = 0.95, tau = 0.01}",
            "FedAdam", "eta = 0.05, beta-1 = 0.8, beta-2 = 0.95, tau = 0.01",
        ),
        ("'adam'", "FedAdam", ""),
        ("'yogi'", "FedYogi", ""),
        (
            "{name = 'sgd', learning-rate = 0.5, momentum = 0.9}",
            "FedAvgM", "server-learning-rate = 0.5, server-momentum = 0.9",
        ),
    ],
    ids=["adam", "adam's defaults", "yogi's defaults", "momentum"],
)  # fmt: skip
def test_fedavg_with_a_server_optimizer_is_flowers_strategy(ours, flowers, arguments):
    changes = {"num_server_rounds": 6, "evaluate_every": 6}
    _, found = train(strategy="fedavg", strategy_args=f"server-optimizer = {ours}", **changes)
    _, expected = train(strategy=f"{FLOWER}:{flowers}", strategy_args=arguments, **changes)
    assert_same_change(model_arrays(found), model_arrays(expected), initial_arrays())
    assert found.history[-1].accuracy == expected.history[-1].accuracy


class WithChange(FedAvg):
    """FedAvg whose clients send the change of their model beside it; only that is averaged."""

    def client(self, received, memory, train):
        """Send the model, and its change as a further vector."""
        update = train(received.model)
        return replace(
            update, vectors={"change": update.model.vector - received.model.vector}
        ), memory

    def read(self, now, reply):
        """Return the change, which the model confirms."""
        change = reply.vector_of("change")
        np.testing.assert_array_equal(change, reply.vector - now.model.vector)
        return (change,)

    def update_norm(self, now, terms, reply):
        """Return the norm of the change."""
        return change_norm(terms[0])

    def step(self, now, aggregate):
        """Return the model plus the mean change."""
        return now.model.vector + aggregate.mean


def test_clients_may_send_vectors_beside_the_model():
    _, found = train(strategy=f"{__name__}:WithChange", strategy_args="weights = 'samples'")
    _, expected = train(strategy="fedavg")
    assert not any(metrics.rejected for metrics in found.history)
    for ours, theirs in zip(model_arrays(found), model_arrays(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)
    up = [run.history[-1].bytes_up for run in (found, expected)]
    assert 1.9 < up[0] / up[1] < 2.1
