"""Sparse ternary compression, against the paper's algorithm."""

import numpy as np
import pytest

from tests.support.compressed_network import BLOCKS, SIZE, Network, flatten
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


def test_messages_carry_what_clients_in_other_languages_need():
    network = Network("stc", sparsity_up=0.1, scope="model")
    (message,) = network.configure(0)
    config = dict(message.content["config"])
    assert len(config.pop("head")) == 17
    assert config == {"server-round": 1, "sparsity-up": 0.1, "scope": "model"}
