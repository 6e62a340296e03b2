"""Top-k sparsification as a strategy."""

import numpy as np
import pytest

import strategies
from strategies.compression.error_feedback import Residual
from strategies.compression.float32 import Float32
from strategies.compression.sparse import Sparse
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
    assert network.strategy.theory_bits_down == 2 * 32 * SIZE


def test_sparse_downlink_sends_updates():
    network = Network("topk", clients=1, sparsity_up=0.02, sparsity_down=0.02)
    before = flatten(network.model)
    network.run_round({0: network.random_change()})
    assert np.count_nonzero(flatten(network.model) - before) == 5  # 0.02 of each tensor
    (message,) = network.configure(0)
    assert "arrays" not in message.content


def test_compressors_are_made_of_the_arguments():
    strategy = strategies.build("topk", {})
    assert (strategy.uplink, strategy.downlink) == (Sparse(0.01, "tensor"), Float32())
    assert (strategy.weights, strategy.feedback) == ("uniform", Residual())
    strategy = strategies.build(
        "topk", {"sparsity_up": 0.1, "sparsity_down": 0.2, "scope": "model", "weights": "samples"}
    )
    assert (strategy.uplink, strategy.downlink) == (Sparse(0.1, "model"), Sparse(0.2, "model"))
    assert strategy.weights == "samples"


def test_messages_carry_what_clients_in_other_languages_need():
    network = Network("topk", sparsity_up=0.1, scope="model")
    (message,) = network.configure(0)
    config = dict(message.content["config"])
    assert len(config.pop("head")) == 13
    assert config == {"server-round": 1, "sparsity-up": 0.1, "scope": "model"}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"sparsity_up": "a"}, "sparsity-up = a"),
        ({"sparsity_down": 0}, "sparsity-down = 0"),
        ({"weights": "none"}, "weights = 'none'"),
        ({"scope": "layer"}, "scope = 'layer'"),
    ],
)
def test_invalid_argument_is_rejected(arguments, reason):
    with pytest.raises(ValueError, match=reason):
        strategies.build("topk", arguments)
