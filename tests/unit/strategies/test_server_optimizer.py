"""Server optimisers against formulas by hand; tests/integration compares them with Flower's."""

import numpy as np
import pytest
import torch
from flwr.app import ConfigRecord

import strategies
from strategies import server_optimizer
from strategies.rounds.flower_arrays import to_record
from strategies.rounds.values import RunSettings
from strategies.server_optimizer import SGD
from tests.support.compressed_network import SIZE, Network, flatten
from tests.support.replies import as_numpy, cohort, reply

pytestmark = pytest.mark.usefixtures("server_identity")


def steps(optimizer, *deltas):
    return [optimizer.step(np.array(delta, float)) for delta in deltas]


@pytest.mark.parametrize("nesterov", [False, True])
def test_momentum_is_torchs(nesterov):
    deltas = np.random.default_rng(0).normal(size=(5, 3))
    weight = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    theirs = torch.optim.SGD([weight], lr=0.7, momentum=0.9, nesterov=nesterov)
    for delta in deltas:
        weight.grad = torch.from_numpy(-delta)
        theirs.step()
    found = steps(SGD(learning_rate=0.7, momentum=0.9, nesterov=nesterov), *deltas)
    np.testing.assert_allclose(np.sum(found, axis=0), weight.detach(), rtol=1e-12)


def run(runner, model, *means, **config):
    """Return the model after rounds in which the clients' mean was each of the means."""
    for number, mean in enumerate(means, 1):
        runner.configure_train(number, to_record(model), ConfigRecord(config), cohort(1))
        outcome = runner.finish_round([reply(1, {**model, **mean})])
        model = as_numpy(outcome.model)
    return model


def test_round_whose_buffers_would_not_be_finite_does_not_move_the_moments():
    """Each reply is finite, their weighted sum is not."""
    model = {"w": np.zeros(2), "mean": np.zeros(2)}
    found = []
    for means in ([1.0, 1.7e308, 2.0], [1.0, 2.0]):
        settings = RunSettings(buffers=("mean",))
        runner = strategies.build("fedavg", {"server_optimizer": "adam"}, settings)
        sent = to_record(model)
        for number, mean in enumerate(means, 1):
            runner.configure_train(number, sent, ConfigRecord(), cohort(1))
            arrays = {"w": np.full(2, float(number == len(means))), "mean": np.full(2, mean)}
            outcome = runner.finish_round([reply(1, arrays, 10**9)])
            assert (outcome.model is None) == (mean > 1e300)
            sent = outcome.model or sent
        found.append(as_numpy(sent))
    np.testing.assert_equal(*found)


def test_buffers_are_averaged_and_not_stepped():
    settings = RunSettings(buffers=("b",))
    runner = strategies.build("fedavg", {"server_optimizer": "adam"}, settings)
    model = {"w": np.zeros(2, np.float32), "b": np.array(3)}
    found = run(runner, model, {"w": np.ones(2, np.float32), "b": np.array(7)})
    assert found["b"] == 7
    assert list(found) == ["w", "b"]
    assert 0 < found["w"][0] < 1


def test_fedsgd_steps_by_the_learning_rate_times_the_gradient():
    runner = strategies.build("fedsgd", {"server_optimizer": {"name": "sgd", "momentum": 0.5}})
    model = {"w": np.zeros(2, np.float32), "b": np.zeros(1, np.float32)}
    gradient = {"w": np.array([1, -2], np.float32), "b": np.zeros(1, np.float32)}
    found = run(runner, model, gradient, gradient, **{"learning-rate": 0.1})
    np.testing.assert_allclose(found["w"], [-0.25, 0.5], rtol=1e-6)  # 0.1 (1 + 1.5)


@pytest.mark.parametrize("name", ["stc", "topk", "qsgd", "eden", "compressed", "sparseloco"])
def test_compressed_strategies_step_before_they_compress(name):
    """All entries are sent, so the model changes by what the optimiser returns."""
    whole = {
        "stc": {"sparsity_up": 1.0, "sparsity_down": 1.0},
        "topk": {"sparsity_up": 1.0},
        "sparseloco": {"sparsity": 1.0},
        "compressed": {"uplink": "float32"},
    }.get(name, {})
    plain = Network(name, clients=1, **whole)
    stepped = Network(name, clients=1, server_optimizer={"name": "sgd", "momentum": 0.5}, **whole)
    before, change = flatten(plain.model), np.full(SIZE, 0.5, np.float32)
    moved = []
    for network in (plain, stepped):
        network.run_round({0: change})
        network.run_round({0: change})
        moved.append((flatten(network.model) - before).mean())
    assert moved[0] == pytest.approx(1.0, rel=0.15)
    assert moved[1] / moved[0] == pytest.approx(1.25, rel=0.15)  # (1 + 1.5) / (1 + 1)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("sdg", "'sdg' is no server optimizer; known: adam, sgd, yogi; or package"),
        ({"learning-rate": 1}, "server-optimizer = .*: give a name"),
        ({"name": "none", "momentum": 0.9}, "server optimizer 'none' takes no arguments"),
        ({"name": "sgd", "learning-rate": 0}, "learning-rate = 0: should be greater than 0"),
        ({"name": "sgd", "learning-rate": "1"}, "learning-rate = '1': should be a valid number"),
        ({"name": "sgd", "nesterov": 0.5}, "nesterov = 0.5: should be a valid boolean"),
        ({"name": "sgd", "momentum": 1.0}, "momentum = 1.0: should be less than 1"),
        ({"name": "adam", "beta-1": -0.1}, "beta-1 = -0.1: should be greater than or equal to 0"),
        ({"name": "yogi", "beta-2": 1}, "beta-2 = 1: should be less than 1"),
        ({"name": "adam", "tau": 0}, "tau = 0: should be greater than 0"),
        ({"name": "adam", "beta": 0}, "Adam does not take beta; it takes: learning-rate, beta-1"),
        ("strategies.stc:STC", "is not a subclass of ServerOptimizer"),
    ],
)
def test_invalid_server_optimizer_is_named(given, reason):
    with pytest.raises(ValueError, match=reason):
        server_optimizer.build(given)
