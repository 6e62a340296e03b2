"""SparseLoCo, and the decay of error feedback, next to NumPy from the paper."""

import numpy as np
import pytest

from tests.support.compressed_network import SIZE, Network, flatten

pytestmark = pytest.mark.usefixtures("server_identity")

CHUNK, KEPT, BETA, ALPHA = 50, 5, 0.75, 0.5


def q_of_top_k(vector, bits):
    """Return the largest entries of every chunk; with two bits, as means of two groups."""
    sent = np.zeros(len(vector))
    for start in range(0, len(vector), CHUNK):
        part = vector[start : start + CHUNK]
        k = -(-len(part) * KEPT // CHUNK)
        top = np.argsort(-np.abs(part), kind="stable")[:k]
        sizes = np.abs(part[top])
        if bits == 2:
            larger = sizes > sizes.mean()
            for group in (larger, ~larger):
                if group.any():
                    sizes[group] = sizes[group].mean()
        sent[start + top] = np.sign(part[top]) * sizes
    return sent


@pytest.mark.parametrize("bits", [2, 32])
def test_rounds_are_those_of_the_paper_with_a_reply_lost_and_a_client_left_out(bits):
    """What is sent is subtracted once the server has it, as if a lost reply were never sent."""
    network = Network(
        "sparseloco", clients=3, sparsity=KEPT / CHUNK, chunk=CHUNK, bits=bits,
        feedback_decay=BETA,
        server_optimizer={"name": "sgd", "momentum": 0.0, "learning_rate": ALPHA},
    )  # fmt: skip
    model, left = flatten(network.model).astype(np.float64), np.zeros((3, SIZE))
    for number in range(8):
        clients = [0, 1] if number in (2, 3) else [0, 1, 2]
        lost = 1 if number in (1, 4, 5) else None
        changes = {client: network.random_change() for client in clients}
        updates = []
        for client, change in changes.items():
            left[client] = BETA * left[client] + change
            if client != lost:
                updates.append(q_of_top_k(left[client], bits))
                left[client] -= updates[-1]
        model += ALPHA * np.mean(updates, axis=0)
        replies = [
            network.train(m, changes[c])
            for c, m in zip(clients, network.configure(*clients), strict=True)
        ]
        network.aggregate(
            [reply for client, reply in zip(clients, replies, strict=True) if client != lost]
        )
        np.testing.assert_allclose(flatten(network.model), model, atol=1e-5)
    for client in range(3):
        np.testing.assert_allclose(network.residual(client), left[client], atol=1e-5)
    assert not network.strategy.residual.any(), "nothing is left at the server"


def test_server_keeps_all_of_its_residual():
    """The decay is the clients'; the server's update is compressed as without it."""
    down = {"name": "sparse", "sparsity": 0.1}
    networks = [
        Network("compressed", 1, uplink="float32", downlink=down, feedback_decay=decay)
        for decay in (0.5, 1.0)
    ]
    for _ in range(3):
        for network in networks:
            network.run_round({0: network.random_change()})
    decaying, whole = (network.strategy.residual for network in networks)
    np.testing.assert_array_equal(decaying, whole)
    assert np.abs(whole).max() > 0
