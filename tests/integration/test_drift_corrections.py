"""SCAFFOLD and FedNova: runs of the real client against the papers' algorithms in NumPy."""

import numpy as np
import pytest
import torch
from flwr.app import ConfigRecord

import strategies
import tasks
from fedavg_app.client.client_process import task_client
from fedavg_app.config import parse_config
from fedavg_app.errors import ConfigError
from fedavg_app.flower_internals import identify_server
from fedavg_app.partitioning import partition
from fedavg_app.server.client_sampling import sample_clients
from tests.support.in_process import run_here, told_by
from tests.support.replies import cohort, record, reply
from tests.support.run_folders import only_folder, read_history
from tests.support.task_clients import fit, softmax_gradient

RATE, ROUNDS, CLIENTS, SIZE = 0.05, 6, 6, 3
CONFIG = {
    "task": "mnist-logistic", "data-source": "embedded", "num-clients": CLIENTS, "seed": 3,
    "fraction-train": 0.5, "num-server-rounds": ROUNDS, "target": "none", "batch-size": 0,
    "learning-rate": RATE, "partition": "dirichlet", "partition-args": "alpha = 0.5",
}  # fmt: skip


def train(folder, lost=(), **changes):
    """Run; the replies of these (round, client) never arrive."""
    config = parse_config({**CONFIG, "run-dir": str(folder), **changes})
    rounds = dict.fromkeys(range(CLIENTS), 0)

    def lose(client):
        def tamper(reply):
            server_round = participation(config, client)[rounds[client]]
            rounds[client] += 1
            return None if (server_round, client) in lost else reply

        return tamper

    result = run_here(config, tamper={client: lose(client) for client in range(CLIENTS)})
    return config, {name: array.numpy() for name, array in result.model.items()}


def cohorts(config):
    rounds = range(1, ROUNDS + 1)
    return {n: sample_clients(config.seed, n, "train", SIZE, range(CLIENTS)) for n in rounds}


def participation(config, client):
    return [n for n, chosen in cohorts(config).items() if client in chosen]


class Logistic:
    """The clients' data and full-batch gradients of logistic regression, in float64."""

    def __init__(self, config):
        task = tasks.load(config.task)
        data = task.dataset(config.data_options)
        inputs = task.prepare(torch.from_numpy(np.array(data.train.inputs))).flatten(1).numpy()
        self.rows = partition(data, "train", config)
        self.inputs, self.targets = inputs.astype(np.float64), np.array(data.train.targets)
        state = task.initial_model(config.seed).state_dict()
        self.start = [array.numpy().astype(np.float64) for array in state.values()]

    def gradient(self, client, weights):
        rows = self.rows[client]
        return softmax_gradient(weights, self.inputs[rows], self.targets[rows])


def plus(a, b, factor=1.0):
    return [ours + factor * other for ours, other in zip(a, b, strict=True)]


def scaffold(config, data, steps, lost, global_rate):
    """Algorithm 1 of arXiv 1910.06378 with option II; a lost reply changes nothing."""
    x = data.start
    zero = [np.zeros_like(w) for w in x]
    c, own = zero, dict.fromkeys(range(CLIENTS), zero)
    for server_round, chosen in cohorts(config).items():
        arrived = [k for k in chosen if (server_round, k) not in lost]
        moves, changes = [], []
        for k in arrived:
            y = x
            for _ in range(steps):
                y = plus(y, plus(plus(data.gradient(k, y), own[k], -1), c), -RATE)
            new = plus(plus(own[k], c, -1), plus(x, y, -1), 1 / (steps * RATE))
            moves.append(plus(y, x, -1))
            changes.append(plus(new, own[k], -1))
            own[k] = new
        for move, change in zip(moves, changes, strict=True):
            x = plus(x, move, global_rate / len(arrived))
            c = plus(c, change, 1 / CLIENTS)
    return x


@pytest.mark.parametrize(
    ("rounds_with_losses", "rate"), [((), 1.0), ((1, 2, 4), 1.0), ((), 0.5)],
    ids=["all-arrive", "replies-are-lost", "global-rate"],
)  # fmt: skip
def test_scaffold_is_the_papers_algorithm(tmp_path, rounds_with_losses, rate):
    """Also where replies are lost: a client uses the variate that the server has counted."""
    chosen = cohorts(parse_config(CONFIG))
    lost = {(n, chosen[n][0]) for n in rounds_with_losses}
    keys = {
        "strategy": "scaffold", "local-steps": 4, "round-timeout": 0.3 if lost else 0.0,
        "strategy-args": f"global-learning-rate = {rate}" if rate != 1 else "",
    }  # fmt: skip
    config, model = train(tmp_path, lost, **keys)
    last = read_history(only_folder(tmp_path))[-1]
    for way, times in (("up", 1), ("down", 2)):  # the bytes of FedAvg
        assert last[f"theory_bits_{way}"] == times * 32 * 7850 * last["participants"]
        full = 4 * 7850 * last["participants"]
        assert 0.98 < last[f"bytes_{way}"] / full / times < 1.05
    expected = scaffold(config, Logistic(config), 4, lost, rate)
    for ours, theirs in zip(model.values(), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=2e-6)


def test_node_that_comes_back_is_told_what_was_accepted_of_it_before():
    """Its variate is part of the server's, though another node was its client in between."""
    identify_server(1)
    strategy = strategies.build("scaffold", {})
    arrays = record({"w": np.ones(3, np.float32)})
    config = ConfigRecord({"learning-rate": 0.1, "batch-size": 5, "local-steps": 2})
    strategy.configure_train(1, arrays, config, cohort(7))
    assert strategy.finish_round([reply(7, arrays)]).model is not None
    strategy.configure_train(2, arrays, config, cohort(8))
    (message,) = strategy.configure_train(3, arrays, config, cohort(7))
    assert message.content["fedavg-strategies"]["accepted-round"] == 1


def test_fednova_is_the_papers_update(tmp_path):
    """Clients of unlike sizes take ceil(n_k / B) steps each."""
    config, model = train(tmp_path, **{"strategy": "fednova", "batch-size": 100, "local-epochs": 2})
    data = Logistic(config)
    sizes = [len(rows) for rows in data.rows]
    assert len({-(-n // 100) for n in sizes}) > 2
    # The clients' batches are those of FedAvg's client; its one-client rounds give their models.
    x = data.start
    for server_round, chosen in cohorts(config).items():
        total = sum(sizes[k] for k in chosen)
        steps = {k: 2 * -(-sizes[k] // 100) for k in chosen}
        tau = sum(sizes[k] / total * steps[k] for k in chosen)
        move = [np.zeros_like(w) for w in x]
        for k in chosen:
            y = trained_by(config, k, x, server_round)
            move = plus(move, plus(y, x, -1), sizes[k] / total / steps[k])
        x = plus(x, move, tau)
    for ours, theirs in zip(model.values(), x, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=2e-6)


def trained_by(config, client, weights, server_round):
    """Return the model that a client's training in a round ends with."""
    task = tasks.load(config.task)
    told = told_by(config, task, task.dataset(config.data_options))
    told = {**told, "learning-rate": RATE, "server-round": server_round}
    trainer = task_client({"partition-id": client}, config.model_dump(by_alias=True), told)
    trained, _, _ = fit(trainer, [w.astype(np.float32) for w in weights], told)
    return [array.astype(np.float64) for array in trained]


@pytest.mark.parametrize("strategy", ["scaffold", "fednova"])
def test_momentum_is_refused(tmp_path, strategy):
    with pytest.raises(ConfigError, match=r"momentum = 0\.9: leave it out: .* without momentum"):
        train(tmp_path, strategy=strategy, momentum=0.9)
