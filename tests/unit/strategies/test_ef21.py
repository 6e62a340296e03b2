"""EF21: the algorithm, and estimates that both ends share through every fault."""

import numpy as np
import pytest

from strategies.base import RunSettings
from strategies.reply_validation import ReplyBounds
from tests.support.compressed_network import FIRST_NODE, SIZE, Network, flatten, payload

pytestmark = pytest.mark.usefixtures("server_identity")

P = 0.25


def ef21(clients=4, **arguments):
    return Network("ef21", clients, **{"sparsity_up": P, "scope": "model", **arguments})


def server_estimate(network, client):
    return network.strategy.update_sum[FIRST_NODE + client]


def estimate(network, client):
    return network.memory(client)["estimate"]


def largest(vector, count):
    """Return the vector with its ``count`` largest entries, the others 0."""
    kept = np.zeros_like(vector)
    places = np.argsort(-np.abs(vector), kind="stable")[:count]
    kept[places] = vector[places]
    return kept


def test_all_clients_in_every_round_is_algorithm_2_of_the_paper():
    """x <- x - g, g_i <- g_i + C(gamma grad f_i(x) - g_i), g the mean of the g_i.

    The losses are quadratic, with slopes and minima of their own.
    """
    network, rng = ef21(), np.random.default_rng(2)
    slopes, minima = rng.uniform(0.5, 2, size=(4, SIZE)), rng.normal(scale=3, size=(4, SIZE))
    x, estimates = flatten(network.model).astype(np.float64), np.zeros((4, SIZE))
    for server_round in range(1, 281):
        model = flatten(network.model)
        changes = (-0.05 * slopes * (model - minima)).astype(np.float32)
        network.run_round(dict(enumerate(changes)))
        wanted = -0.05 * slopes * (x - minima)
        for c in range(4):
            estimates[c] += largest(wanted[c] - estimates[c], int(np.ceil(P * SIZE)))
        x += estimates.mean(axis=0)
        if server_round == 30:
            np.testing.assert_allclose(flatten(network.model), x, atol=2e-3)
    optimum = (slopes * minima).sum(axis=0) / slopes.sum(axis=0)
    assert np.abs(flatten(network.model) - optimum).max() < 0.01


def test_update_of_an_estimate_that_the_server_lacks_is_rejected():
    network = ef21(clients=1)
    (message,) = network.configure(0)
    reply = network.train(message, network.random_change())
    changed = bytearray(payload(reply))
    changed[1] = 0  # no first update, it claims
    reply.content["update"]["payload"] = bytes(changed)
    network.aggregate([reply])
    assert "an estimate that the server does not have" in str(network.outcome.rejected[FIRST_NODE])
    network.run_round({0: network.random_change()})
    assert not network.outcome.rejected, "it is told so, and begins anew"
    assert np.array_equal(server_estimate(network, 0), estimate(network, 0))


def test_round_with_too_few_replies_changes_no_estimate():
    network = ef21(clients=3, settings=RunSettings(min_replies=2))
    network.run_round({0: network.random_change(), 1: network.random_change()})
    before = [server_estimate(network, client).copy() for client in range(2)]
    network.run_round({0: network.random_change()})
    for client in range(2):
        assert np.array_equal(server_estimate(network, client), before[client])
    changes = {client: network.random_change() for client in range(2)}
    network.run_round(changes)
    assert not network.outcome.rejected
    for client in range(2):
        assert np.array_equal(server_estimate(network, client), estimate(network, client))


def test_norm_bound_is_that_of_the_estimate():
    network = ef21(clients=2, sparsity_up=1.0)
    network.strategy.settings = RunSettings(bounds=ReplyBounds(max_update_norm=np.sqrt(SIZE) * 1.1))
    ones = np.ones(SIZE, np.float32)
    network.run_round({0: ones, 1: ones})
    network.run_round({0: 2 * ones, 1: -ones})  # the second's change is twice as long as allowed
    assert list(network.outcome.rejected) == [FIRST_NODE]
    assert "max-update-norm" in str(network.outcome.rejected[FIRST_NODE])
    np.testing.assert_allclose(server_estimate(network, 0), 1, rtol=1e-5)
    np.testing.assert_allclose(server_estimate(network, 1), -1, rtol=1e-5)
