"""STC and DGC against their papers' algorithms, signSGD by hand."""

import math

import numpy as np
import pytest

from tests.support.compressed_network import (
    BLOCKS,
    REPLY_HEAD_BYTES,
    SIZE,
    Network,
    flatten,
    payload,
    replace_payload,
)
from tests.support.compression_reference import algorithm_2

pytestmark = pytest.mark.usefixtures("server_identity")


@pytest.mark.parametrize(("scope", "blocks"), [("tensor", BLOCKS), ("model", (SIZE,))])
def test_model_follows_algorithm_2_of_the_paper(scope, blocks):
    network = Network("stc", clients=3, sparsity_up=0.1, sparsity_down=0.04, scope=scope)
    start = flatten(network.model).astype(np.float64)
    changes = [[network.random_change() for _ in range(3)] for _ in range(25)]
    for in_round in changes:
        network.run_round(dict(enumerate(in_round)))
    expected = algorithm_2(start, changes, 0.1, 0.04, blocks)
    np.testing.assert_allclose(flatten(network.model), expected, atol=1e-4)


def test_majority_moves_a_weight_one_step_and_ties_leave_it():
    network = Network("signsgd", clients=4, step_size=0.5)
    before = flatten(network.model)
    votes = np.zeros((4, SIZE), np.float32)
    votes[:, 0] = [1, 2, -5, 0.1]  # three to one
    votes[:, 1] = [1, 2, -5, -9]  # a tie
    votes[:, 2] = [-1e-6, 0, 0, 0]  # one against none
    votes[:, 3] = [-1, -1, 100, 0]
    network.run_round(dict(enumerate(votes)))
    expected = np.zeros(SIZE)
    expected[[0, 2, 3]] = [0.5, -0.5, -0.5]
    np.testing.assert_allclose(flatten(network.model) - before, expected, atol=1e-6)
    assert "error-feedback" not in network.contexts[0].state
    assert network.strategy.residual is None


def test_step_and_examples_that_a_client_sends_do_not_weight_its_vote():
    network = Network("signsgd", clients=3, step_size=0.5)
    before = flatten(network.model)
    ones = np.ones(SIZE, np.float32)

    def enlarge_step(replies):
        data = bytearray(payload(replies[2]))
        data[REPLY_HEAD_BYTES : REPLY_HEAD_BYTES + 4] = np.float32(1000).tobytes()
        replace_payload(replies[2], bytes(data))

    network.run_round({0: ones, 1: ones, 2: -ones}, {0: 1, 1: 1, 2: 1000}, enlarge_step)
    assert not network.outcome.rejected
    np.testing.assert_allclose(flatten(network.model) - before, 0.5, atol=1e-6)


def test_theory_bits_of_missed_rounds_are_those_of_a_sum_of_signs():
    network = Network("signsgd", clients=2)
    ones = np.ones(SIZE, np.float32)
    network.run_round({0: ones, 1: ones})
    for _ in range(3):
        network.run_round({0: ones})
    network.configure(0)
    assert network.bits_down == pytest.approx(SIZE * np.log2(2 * 1 + 1))
    network.configure(1)
    assert network.bits_down == pytest.approx(SIZE * np.log2(2 * 4 + 1))


def test_run_with_all_clients_in_every_round_is_the_papers_algorithm():
    """Algorithm 1 and appendix B: u <- m u + clip(g), v <- v + u, the largest of v are sent."""
    p, m, clip, warm_up, clients = 0.04, 0.9, 8.0, 3, 3
    network = Network(
        "dgc", clients, sparsity_up=p, momentum=m, clip_norm=clip, warmup_rounds=warm_up,
        scope="model",
    )  # fmt: skip
    x = flatten(network.model).astype(np.float64)
    u, v = np.zeros((clients, SIZE)), np.zeros((clients, SIZE))
    for server_round in range(1, 12):
        share = p ** (server_round / (warm_up + 1)) if server_round <= warm_up else p
        changes = {client: network.random_change() for client in range(clients)}
        network.run_round(changes)
        total = np.zeros(SIZE)
        for client, change in changes.items():
            g = change.astype(np.float64)
            g *= min(1, clip / np.linalg.norm(g))
            u[client] = m * u[client] + g
            v[client] += u[client]
            sent = np.argsort(-np.abs(v[client]), kind="stable")[: math.ceil(share * SIZE - 1e-6)]
            total[sent] += v[client, sent]
            u[client, sent] = v[client, sent] = 0
        x += total / clients
        np.testing.assert_allclose(flatten(network.model), x, atol=1e-4)


def test_lost_reply_of_a_warm_up_round_is_taken_back():
    """What is pending was compressed by another round's sparsity."""
    network = Network("dgc", 1, sparsity_up=0.02, momentum=0.0, warmup_rounds=3, scope="model")
    change = network.random_change()
    network.run_round({0: change})
    first = network.memory(0)["residual"].copy()
    (message,) = network.configure(0)
    network.train(message, change)  # its reply never arrives
    before = flatten(network.model)
    network.run_round({0: change})
    moved = flatten(network.model) - before
    np.testing.assert_allclose(moved + network.memory(0)["residual"], first + 2 * change, atol=1e-4)
