"""STC against its paper's algorithm, signSGD by hand."""

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
