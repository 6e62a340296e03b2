"""Top-k sparsification as a strategy."""

import numpy as np
import pytest

from tests.support.compressed_network import SIZE, Network, flatten

pytestmark = pytest.mark.usefixtures("server_identity")


def test_clients_send_their_largest_entries_and_download_the_full_model():
    network = Network("topk", clients=2, sparsity_up=0.02)
    before = flatten(network.model)
    changes = [network.random_change(), network.random_change()]
    network.run_round(dict(enumerate(changes)))
    expected = np.zeros((2, SIZE))
    for row, change in zip(expected, changes, strict=True):
        for start, stop, k in ((0, 117, 3), (117, 130, 1), (130, 131, 1)):
            kept = start + np.argsort(-np.abs(change[start:stop]))[:k]
            row[kept] = change[kept]
    np.testing.assert_allclose(flatten(network.model) - before, expected.mean(0), atol=1e-6)
    for message in network.configure(0, 1):
        assert "arrays" in message.content
        assert "updates" not in message.content["config"]
    assert network.bits_down == 2 * 32 * SIZE


def test_sparse_downlink_sends_updates():
    network = Network("topk", clients=1, sparsity_up=0.02, sparsity_down=0.02)
    before = flatten(network.model)
    network.run_round({0: network.random_change()})
    assert np.count_nonzero(flatten(network.model) - before) == 5  # 0.02 of each tensor
    (message,) = network.configure(0)
    assert "arrays" not in message.content
