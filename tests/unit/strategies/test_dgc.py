"""DGC against the algorithm of its paper, node by node."""

import math

import numpy as np
import pytest

from tests.support.compressed_network import SIZE, Network, flatten

pytestmark = pytest.mark.usefixtures("server_identity")


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
