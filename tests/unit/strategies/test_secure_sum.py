"""Secure sums: the sum under masks is the sum, whoever is lost; what is sent says nothing else."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strategies.secure.messages import Stage, threshold
from tests.support.compressed_network import SIZE, flatten
from tests.support.secure_network import SecureNetwork, stages

pytestmark = pytest.mark.usefixtures("server_identity")


@st.composite
def cohorts(draw):
    """Return a number of clients, and those that are lost at each stage, at most n - t."""
    clients = draw(st.integers(2, 12))
    most = clients - threshold(clients)
    lost = draw(st.sets(st.integers(0, clients - 1), max_size=most))
    return clients, {client: draw(st.sampled_from(stages())) for client in sorted(lost)}


@settings(max_examples=25, deadline=None)
@given(cohorts(), st.integers(4, 16))
def test_masked_sum_is_the_sum_of_the_clients_that_are_left(made, bits):
    clients, lost = made
    network = SecureNetwork(clients, sparsity=0.3, bits=bits)
    for _ in range(3):
        changes = {client: network.random_change() for client in range(clients)}
        before = network.model
        by_stage = {stage: [c for c, at in lost.items() if at == stage] for stage in stages()}
        outcome = network.sum_round(changes, by_stage)
        assert outcome.model is not None, network.errors
        in_sum = [c for c in range(clients) if lost.get(c, Stage.UNMASK) == Stage.UNMASK]
        expected = network.model_after(before, in_sum)
        np.testing.assert_array_equal(flatten(network.model), expected)
    assert np.abs(flatten(network.model) - flatten(before)).max() > 0.01


def test_round_with_fewer_than_t_clients_changes_nothing_and_loses_no_update():
    network = SecureNetwork(6, sparsity=1.0, bits=16)
    changes = {client: network.random_change() for client in range(6)}
    network.sum_round(changes)
    for stage in stages():
        outcome = network.sum_round(changes, {stage: [0, 1]})
        assert outcome.model is None
        assert "5 of 6 clients are needed, 4 answered" in str(outcome.rejected[12])
    before = flatten(network.model)
    network.sum_round(dict.fromkeys(range(6), np.zeros(SIZE, np.float32)))
    # Rounds 1 and 5 trained all clients, round 4 trained four of them; the other two none.
    total = sum(network.memory(client).vectors["residual"] for client in range(6))
    assert np.abs(flatten(network.model) - before).max() > 0
    np.testing.assert_allclose(
        total, sum(changes.values()) * 2 + sum(changes[c] for c in range(2, 6)), atol=1e-4
    )
