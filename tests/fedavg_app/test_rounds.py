"""The round loop with the real ClientApp on real data, in one process."""

import json

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, MetricRecord

import tasks
from fedavg_app.config import RunConfig
from fedavg_app.errors import RunError
from fedavg_app.evaluation import CentralTest
from fedavg_app.internals import error_reply
from fedavg_app.nodes import Roster
from fedavg_app.partitions import split_labels
from fedavg_app.parts import load_parts
from fedavg_app.plan import make_plan
from fedavg_app.rounds import run_rounds
from fedavg_app.sampling import sample
from fedavg_app.server_app import client_config
from tasks.base import Examples
from tasks.client import TaskClient
from tests.fedavg_app.local_grid import LocalGrid

BASE = {
    "task": "mnist-logistic",
    "data-source": "embedded",
    "num-clients": 20,
    "fraction-train": 0.25,
    "num-server-rounds": 4,
    "learning-rate": 0.05,
    "partition": "shards",
}


def train(tamper=None, on_round=None, **changes):
    config = RunConfig(**{**BASE, **{k.replace("_", "-"): v for k, v in changes.items()}})
    task, strategy = load_parts(config)
    data = task.dataset(config.data_options)
    grid = LocalGrid(config.model_dump(by_alias=True), config.num_clients, tamper)
    roster = Roster(grid, config.num_clients)
    roster.assemble()
    outcome = run_rounds(
        grid,
        strategy,
        ArrayRecord(task.initial_model(config.seed).state_dict()),
        roster,
        make_plan(config, task),
        client_config(config, data),
        CentralTest(task, data, config),
        lambda record, arrays: on_round(record) if on_round else None,
    )
    return grid, outcome


def model(outcome):
    return [array.numpy() for array in outcome.arrays.values()]


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(model(a), model(b), strict=True))


def test_fedavg_is_the_papers_algorithm():
    """Against Algorithm 1 written out: the cohorts, the local SGD, the weighted mean."""
    _, outcome = train(local_epochs=2)
    config = RunConfig(**BASE, **{"local-epochs": 2})
    task = tasks.load("mnist-logistic")
    data = task.dataset(config.data_options)
    parts = split_labels(data.train.targets, f"{data.fingerprint}-train", "shards", {}, 20, 1)
    weights = [value.numpy().copy() for value in task.initial_model(1).state_dict().values()]
    for server_round in range(1, 5):
        total = sum(len(parts[k]) for k in sample(1, server_round, "train", 5, range(20)))
        mean = [np.zeros(array.shape) for array in weights]
        for k in sample(1, server_round, "train", 5, range(20)):
            examples = Examples(
                task.prepare(torch.from_numpy(data.train.inputs[parts[k]])),
                torch.from_numpy(np.array(data.train.targets[parts[k]])),
            )
            client = TaskClient(task, task.model(), examples, partition=k)
            trained, count, _ = client.fit(
                weights,
                {"learning-rate": 0.05, "local-epochs": 2, "batch-size": 10, "seed": 1,
                 "server-round": server_round},
            )  # fmt: skip
            mean = [m + count / total * t for m, t in zip(mean, trained, strict=True)]
        weights = [array.astype(np.float32) for array in mean]
    for ours, theirs in zip(model(outcome), weights, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-6)


def test_only_the_seeded_cohort_is_written_to():
    grid, _ = train()
    trained = [number for kind, number in grid.log if kind == "train"]
    expected = [k for t in range(1, 5) for k in sample(1, t, "train", 5, range(20))]
    assert trained == expected


def test_fedsgd_equals_fedavg_with_one_full_batch_step():
    """Both are a step of gradient descent on the participants' data (C = 1, E = 1, B = all)."""
    rounds = {"fraction_train": 1.0, "num_server_rounds": 20}
    _, sgd = train(strategy="fedsgd", **rounds)
    _, avg = train(strategy="fedavg", batch_size=0, **rounds)
    for ours, theirs in zip(model(sgd), model(avg), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)
    assert sgd.records[-1].accuracy > sgd.records[0].accuracy + 0.1


@pytest.mark.parametrize("strategy", ["fedavg", "fedsgd", "flwr.serverapp.strategy:FedMedian"])
def test_the_same_seed_gives_the_same_bits(strategy):
    _, first = train(strategy=strategy)
    _, again = train(strategy=strategy)
    _, other = train(strategy=strategy, seed=2)
    assert same(first, again)
    assert not same(first, other)


@pytest.mark.parametrize(
    ("path", "arguments"),
    [
        ("flwr.serverapp.strategy:FedAdam", "eta = 0.01, tau = 0.001"),
        ("flwr.serverapp.strategy:FedMedian", ""),
        ("flwr.serverapp.strategy:Krum", "num_malicious_nodes = 1"),
        ("flwr.serverapp.strategy:FedProx", "proximal_mu = 0.1"),
        ("flwr.serverapp.strategy:FedTrimmedAvg", "beta = 0.2"),
    ],
)
def test_flowers_own_strategies_learn_from_the_seeded_cohort(path, arguments):
    # Krum takes one client's model: with one or two classes a client that is no model of all ten.
    grid, outcome = train(
        strategy=path, strategy_args=arguments, num_server_rounds=8, partition="iid"
    )
    trained = [number for kind, number in grid.log if kind == "train"]
    cohorts = [sample(1, t, "train", 5, range(20)) for t in range(1, 9)]
    by_round = [sorted(trained[5 * t : 5 * t + 5]) for t in range(8)]
    assert by_round == cohorts
    assert outcome.records[-1].test_loss < outcome.records[0].test_loss
    assert {array.dtype for array in outcome.arrays.values()} == {"float32"}


def poison(value):
    def tamper(reply):
        arrays = reply.content["arrays"]
        name = next(iter(arrays))
        arrays[name] = Array(np.full(arrays[name].shape, value, dtype=np.float32))
        return reply

    return tamper


def drop(record):
    def tamper(reply):
        del reply.content[record]
        return reply

    return tamper


def claim(count):
    def tamper(reply):
        reply.content["metrics"] = MetricRecord({"num-examples": count})
        return reply

    return tamper


def reshape(reply):
    arrays = reply.content["arrays"]
    name = next(iter(arrays))
    arrays[name] = Array(np.zeros(3, dtype=np.float32))
    return reply


def the_raiser(reply):
    """Turn the client's reply into an error reply to the same message."""
    reply.__dict__["_content"] = None
    reply.error = error_reply(reply, "Traceback\nKeyError: 'x'").error
    return reply


BAD_CLIENTS = {
    "raises": (the_raiser, "KeyError: 'x'"),
    "nan": (poison(np.nan), "NaN"),
    "inf": (poison(np.inf), "infinite"),
    "shape": (reshape, "expected"),
    "no arrays": (drop("arrays"), "no ArrayRecord"),
    "no metrics": (drop("metrics"), "no MetricRecord"),
    "no examples": (claim(0), "at least 1"),
    "negative": (claim(-5), "at least 1"),
    "never answers": (lambda reply: None, "no reply in time"),
}


@pytest.mark.parametrize("strategy", ["fedavg", "fedsgd", "flwr.serverapp.strategy:FedAdam"])
@pytest.mark.parametrize("kind", BAD_CLIENTS)
def test_a_bad_client_is_rejected_counted_and_logged_and_the_run_goes_on(kind, strategy, caplog):
    tamper, reason = BAD_CLIENTS[kind]
    victim = sample(1, 1, "train", 5, range(20))[2]
    grid, outcome = train(
        {victim: tamper},
        strategy=strategy,
        num_server_rounds=2,
        round_timeout=0.3 if kind == "never answers" else 0.0,
    )
    record = outcome.records[1]
    node = next(n for n in grid.get_node_ids() if grid.partition(n) == victim)
    assert set(record.rejected) == {node}
    assert reason in record.rejected[node]
    assert "\n" not in record.rejected[node]
    assert record.participants == 5
    assert all(np.isfinite(array).all() for array in model(outcome))
    if kind != "never answers":
        assert f"reply of node {node} rejected" in caplog.text


def test_the_mean_is_that_of_the_clients_that_were_accepted():
    victim = sample(1, 1, "train", 5, range(20))[0]
    _, with_nan = train({victim: poison(np.nan)}, num_server_rounds=1)
    _, with_error = train({victim: the_raiser}, num_server_rounds=1)
    _, clean = train(num_server_rounds=1)
    assert same(with_nan, with_error)
    assert not same(with_nan, clean)


def test_a_run_without_any_usable_reply_fails_and_says_why():
    everyone = dict.fromkeys(range(20), poison(np.nan))
    seen = []
    with pytest.raises(RunError, match=r"no usable reply in 3 rounds in a row: .*NaN"):
        train(everyone, on_round=seen.append)
    assert [record.round for record in seen] == [0, 1, 2, 3]
    assert all(len(record.rejected) == 5 for record in seen[1:])


def test_training_stops_at_the_target():
    _, outcome = train(num_server_rounds=50, fraction_train=1.0, target_accuracy=0.6)
    accuracies = [record.accuracy for record in outcome.records]
    assert accuracies[-1] >= 0.6 > max(accuracies[:-1])
    assert len(outcome.records) < 51
    last = outcome.records[-1].round
    assert last - 1 < outcome.rounds_to_target <= last


def test_the_learning_rate_decays_every_round():
    _, outcome = train(learning_rate=0.4, learning_rate_decay=0.5)
    assert [record.learning_rate for record in outcome.records[1:]] == [0.4, 0.2, 0.1, 0.05]


def test_evaluation_every_n_rounds_and_after_the_last():
    _, outcome = train(num_server_rounds=5, evaluate_every=2)
    tested = [record.round for record in outcome.records if record.accuracy is not None]
    assert tested == [0, 2, 4, 5]


def test_clients_evaluate_on_their_own_test_data():
    grid, outcome = train(fraction_evaluate=0.5, num_server_rounds=2)
    asked = [number for kind, number in grid.log if kind == "evaluate"]
    assert asked == sample(1, 1, "evaluate", 10, range(20)) + sample(
        1, 2, "evaluate", 10, range(20)
    )
    metrics = outcome.records[-1].client_metrics
    assert set(metrics) == {"loss", "accuracy", "accuracy-mean", "accuracy-p10"}
    assert metrics["accuracy-p10"] < metrics["accuracy-mean"]
    assert 0 <= metrics["accuracy"] <= 1


def test_everyones_evaluation_is_the_test_sets():
    """All clients hold the test set together: the weighted mean is the accuracy on it."""
    _, outcome = train(fraction_evaluate=1.0, num_server_rounds=2)
    last = outcome.records[-1]
    assert last.client_metrics["accuracy"] == pytest.approx(last.accuracy, abs=1e-6)
    assert last.client_metrics["loss"] == pytest.approx(last.test_loss, rel=1e-5)


def test_local_steps_and_epochs_are_the_same_work():
    # 4,000 examples on 20 clients are 200 each, 20 batches of 10.
    _, epochs = train(local_epochs=2)
    _, steps = train(local_epochs=0, local_steps=40)
    assert same(epochs, steps)


@pytest.mark.parametrize("strategy", ["fedavg", "fedsgd"])
def test_clients_with_momentum_learn_and_repeat(strategy):
    grid, one = train(strategy=strategy, momentum=0.9, learning_rate=0.01, num_server_rounds=8)
    _, again = train(strategy=strategy, momentum=0.9, learning_rate=0.01, num_server_rounds=8)
    _, plain = train(strategy=strategy, learning_rate=0.01, num_server_rounds=8)
    assert same(one, again)
    assert not same(one, plain)
    assert one.records[-1].test_loss < one.records[0].test_loss
    trained = {number for kind, number in grid.log if kind.startswith("train")}
    with_state = {c.node_config["partition-id"] for c in grid.contexts.values() if c.state}
    assert with_state == trained


@pytest.mark.parametrize("partition_args", ["", "classes-per-client = 10, balancedness = 0.9"])
def test_training_on_the_stc_papers_split(partition_args):
    _, outcome = train(
        partition="classes", partition_args=partition_args, strategy_args="weights = 'uniform'"
    )
    assert not any(record.rejected for record in outcome.records)
    assert outcome.records[-1].test_loss < outcome.records[0].test_loss


def test_bytes_are_those_of_five_models_each_way():
    _, outcome = train(num_server_rounds=1)
    record = outcome.records[1]
    model_bytes = sum(len(array.data) for array in outcome.arrays.values())
    assert model_bytes == 4 * 7850 + 2 * 128
    for counted in (record.bytes_down, record.bytes_up):
        assert 5 * model_bytes < counted < 5 * (model_bytes + 400)


def test_records_are_json_lines():
    _, outcome = train(num_server_rounds=1)
    for record in outcome.records:
        assert json.loads(json.dumps(record.as_json(), allow_nan=False))["round"] == record.round


def test_more_are_asked_than_needed_and_the_first_to_answer_are_taken():
    """C = 0.25 of 20 are 5; with half as many again 8 are asked. The grid answers one by one."""
    grid, outcome = train(over_selection=0.5, num_server_rounds=2, evaluate_every=2)
    first = sample(1, 1, "train", 8, range(20))
    second = sample(1, 2, "train", 8, range(20))
    assert [number for kind, number in grid.log if kind == "train"] == first + second
    assert [record.participants for record in outcome.records] == [0, 8, 8]
    assert [record.rejected for record in outcome.records] == [{}, {}, {}]
    # It answers the last first: the mean is that of clients 3 to 7, whose bytes alone count.
    fewer = {number: lambda reply: None for number in first[:3] + second[:3]}
    _, expected = train(fewer, over_selection=0.5, num_server_rounds=2, evaluate_every=2)
    assert same(outcome, expected)
    dense = 7850 * 4 * 5
    assert dense < outcome.records[1].bytes_up < dense * 1.1
    # The next round fetches what came too late, from this grid one reply, and drops it.
    assert len(grid._replies) == 3 + (3 - 1)


def test_errors_do_not_count_as_the_replies_that_are_enough():
    asked = sample(1, 1, "train", 8, range(20))
    broken = dict.fromkeys(asked[-2:], the_raiser)
    _, outcome = train(broken, over_selection=0.5, num_server_rounds=1)
    assert list(outcome.records[1].rejected.values()) == ["error 2: KeyError: 'x'"] * 2
    _, expected = train({n: lambda reply: None for n in (*asked[:1], *asked[-2:])},
                        over_selection=0.5, num_server_rounds=1, round_timeout=0.5)  # fmt: skip
    assert same(outcome, expected)


class FlowersGrid(LocalGrid):
    """Does as Flower's: node A cannot be sent to, for node B it answers itself with an error."""

    def push_messages(self, messages):
        ids = super().push_messages(messages)
        for place, message in enumerate(messages):
            node = message.metadata.dst_node_id
            if message.metadata.message_type == "train" and self.partition(node) == 0:
                ids[place] = None
            elif message.metadata.message_type == "train" and self.partition(node) in (1, 2):
                reply = error_reply(message, "Error: Node Unavailable")
                reply.metadata.__dict__["_src_node_id"] = 1
                self._replies[ids[place]] = reply
        return ids

    def pull_messages(self, message_ids):
        assert None not in message_ids
        return super().pull_messages(message_ids)


def test_nodes_that_cannot_be_reached_are_named(monkeypatch):
    monkeypatch.setattr("tests.fedavg_app.test_rounds.LocalGrid", FlowersGrid)
    grid, outcome = train(num_clients=5, fraction_train=1.0, num_server_rounds=1)
    why = {grid.partition(node): reason for node, reason in outcome.records[1].rejected.items()}
    assert why == {
        0: "it could not be sent a message",
        1: "error 2: Error: Node Unavailable",
        2: "error 2: Error: Node Unavailable",
    }


def test_no_message_is_given_to_a_node_after_its_round_is_over(monkeypatch):
    lives = []

    class Grid(LocalGrid):
        def push_messages(self, messages):
            lives.extend(m.metadata.ttl for m in messages if m.metadata.message_type == "train")
            return super().push_messages(messages)

    monkeypatch.setattr("tests.fedavg_app.test_rounds.LocalGrid", Grid)
    train(num_server_rounds=1, round_timeout=7.5)
    assert lives == [8.5] * 5
    train(num_server_rounds=1)
    assert min(lives[5:]) > 3600
