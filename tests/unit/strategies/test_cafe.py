"""CAFe next to NumPy from the paper, with clients that keep nothing."""

import numpy as np
import pytest
from flwr.app import ConfigRecord

from strategies.compression.codec import Codec
from strategies.compression.floats import Float32
from strategies.compression.random_entries import RandomEntries
from strategies.compression.sparse import Sparse
from tests.support.compressed_network import BLOCKS, FIRST_NODE, SIZE, Network, flatten
from tests.support.replies import cohort

pytestmark = pytest.mark.usefixtures("server_identity")

SPARSITY = 0.1
UPLINK = {"name": "sparse", "sparsity": SPARSITY}


def top_k(vector):
    """Return the vector with the largest entries of every array only."""
    sent, start = np.zeros(len(vector)), 0
    for size in BLOCKS:
        k = max(int(np.ceil(SPARSITY * size - 1e-6)), 1)
        part = vector[start : start + size]
        top = np.argsort(-np.abs(part), kind="stable")[:k]
        sent[start + top] = part[top]
        start += size
    return sent


@pytest.mark.parametrize("forgets", [False, True])
def test_rounds_are_those_of_the_paper(forgets):
    """A lost reply, or a client that was never asked before, changes nothing for the others."""
    network = Network("cafe", clients=4, uplink=UPLINK)
    model, last = flatten(network.model).astype(np.float64), np.zeros(SIZE)
    for number in range(8):
        clients = [0, 1, 3] if number in (2, 6) else [0, 1, 2]
        lost = 1 if number in (1, 4) else None
        changes = {client: network.random_change() for client in clients}
        last = last + np.mean(
            [top_k(change - last) for client, change in changes.items() if client != lost], axis=0
        )
        model += last
        messages = network.configure(*clients)
        assert network.bits_down == len(clients) * 32 * SIZE * (1 if number == 0 else 2)
        replies = [
            network.train(m, changes[c])
            for c, m in zip(clients, messages, strict=True)
            if c != lost
        ]
        network.aggregate(replies)
        np.testing.assert_allclose(flatten(network.model), model, atol=1e-5)
        if forgets:
            network.contexts = [network.new_context(client) for client in range(4)]


def test_update_that_repeats_is_sent_in_full_after_enough_rounds():
    """What is left out of a change that stays the same is sent in later rounds."""
    network = Network("cafe", clients=1, uplink=UPLINK)
    change = network.random_change()
    for _ in range(12):
        before = flatten(network.model)
        network.run_round({0: change})
    np.testing.assert_allclose(flatten(network.model) - before, change, atol=1e-5)


def test_round_without_replies_leaves_the_last_update():
    network = Network("cafe", clients=2, uplink=UPLINK)
    network.run_round({0: network.random_change(), 1: network.random_change()})
    last = network.strategy.last_update.copy()
    network.configure(0, 1)
    network.aggregate([])
    np.testing.assert_array_equal(network.strategy.last_update, last)


def test_evaluation_messages_have_the_model_only():
    network = Network("cafe", clients=1, uplink=UPLINK)
    network.run_round({0: network.random_change()})
    grid = cohort(FIRST_NODE)
    (tested,) = network.runner.configure_evaluate(1, network.model, ConfigRecord({}), grid)
    (trained,) = network.configure(0)
    own = {"fedavg-strategies", "fedavg-strategies.last-update"}
    assert set(trained.content) - set(tested.content) == own


@pytest.mark.parametrize(
    ("decay", "uplink", "message"),
    [
        (0.5, Float32(), "feedback-decay = 0.5 with feedback 'aggregate': leave it out"),
        (1.0, RandomEntries(0.01, unbiased=True), "would grow"),
    ],
)
def test_what_cannot_work_is_refused(decay, uplink, message):
    with pytest.raises(ValueError, match=message):
        Codec(uplink, Float32(), "aggregate", feedback_decay=decay)


def test_codec_has_a_text():
    codec = Codec(Sparse(SPARSITY), Float32(), "aggregate")
    assert Codec.parse(str(codec)) == codec
    assert '"feedback":{"name":"aggregate"}' in str(codec)
