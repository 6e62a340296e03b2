"""Clients on some links have a compressor of their own."""

from dataclasses import replace

import numpy as np
import pytest

import strategies
from strategies.client_memory import ClientMemory
from strategies.codec import Codec
from strategies.compression.sparse import Sparse
from tests.support.compressed_network import (
    SIZE,
    Network,
    change_entry,
    flatten,
    payload,
    sent,
)

pytestmark = pytest.mark.usefixtures("server_identity")

SLOW = {"slow": {"uplink": {"name": "sparse", "sparsity": 0.1}}}
FAST = {"name": "sparse", "sparsity": 0.5}


def network(**links):
    """Return three clients, of which the second is on the slow link."""
    found = Network("compressed", clients=3, uplink=FAST, downlink="float32", links=links or SLOW)
    found.contexts[1].node_config["link"] = "slow"
    return found


def residual(network, client):
    """Return what the client has not sent, by its memory alone."""
    memory = ClientMemory.read(network.contexts[client].state)
    sparsity = 0.1 if memory.link == "slow" else 0.5
    pending = Sparse(sparsity).decode(memory.pending, network.layout).to_dense()
    return memory.vectors["residual"] - pending


def test_each_client_sends_its_share_and_keeps_the_rest():
    """What was trained is what the model has and what the clients still keep."""
    clients = network()
    before, total = flatten(clients.model), np.zeros(SIZE)
    for _ in range(5):
        changes = {client: clients.random_change() for client in range(3)}
        clients.run_round(changes)
        assert not clients.outcome.rejected
        total += sum(changes.values()) / 3
    kept = sum(residual(clients, client) for client in range(3)) / 3
    np.testing.assert_allclose(flatten(clients.model) - before + kept, total, atol=1e-5)
    memories = [ClientMemory.read(context.state).pending for context in clients.contexts]
    found = [
        np.count_nonzero(Sparse(share).decode(memory, clients.layout).to_dense())
        for share, memory in zip((0.5, 0.1, 0.5), memories, strict=True)
    ]
    assert found[0] == found[2] > 4 * found[1] > 0


def test_device_that_changes_its_link_keeps_what_it_has_not_sent():
    clients = network()
    before, total = flatten(clients.model), np.zeros(SIZE)
    for link in ("slow", "", "slow", "unknown", "slow"):
        clients.contexts[1].node_config["link"] = link
        change = clients.random_change()
        clients.run_round({1: change})
        assert not clients.outcome.rejected
        total += change
    found = flatten(clients.model) - before + residual(clients, 1)
    np.testing.assert_allclose(found, total, atol=1e-5)


def test_link_named_by_the_server_overrides_that_of_the_node():
    clients = Network("stc", clients=1, sparsity_up=0.5, links={"a": {"sparsity-up": 0.1}})
    clients.contexts[0].node_config["link"] = "b"
    (message,) = clients.configure(0)
    change_entry(message, "link", "a")
    reply = clients.train(message, clients.random_change())
    few = np.count_nonzero(sent(reply))
    (message,) = clients.configure(0)
    assert few < np.count_nonzero(sent(clients.train(message, clients.random_change()))) / 3


def test_client_without_a_link_replies_as_if_there_were_no_links():
    clients, without = network(), Network("compressed", 3, uplink=FAST, downlink="float32")
    (message,) = clients.configure(0)
    (other,) = without.configure(0)
    change = clients.random_change()
    replies = [clients.train(message, change), without.train(other, change)]
    first, second = map(payload, replies)
    assert first == second


def test_text_of_a_codec_names_links_only_where_there_are_some():
    codec = network().strategy.codec
    assert Codec.parse(str(codec)) == codec
    assert '"links":{"slow":{"name":"sparse"' in str(codec)
    assert "links" not in str(replace(codec, links={}))
    assert len(codec.of_replies) == 2
    outside = str(codec).replace('"slow":{"name":"sparse"', '"slow":{"name":"a.b:C"')
    with pytest.raises(ValueError, match=r"slow: 'a\.b:C' is not built in"):
        Codec.parse(outside)


@pytest.mark.parametrize(
    ("own", "error"),
    [
        ({"p": 0.1}, "links.slow: STC does not take p; it takes"),
        ({"sparsity-up": 2.0}, "links.slow: STC: sparsity-up = 2.0: "),
        (
            {"sparsity-down": 0.1},
            "links.slow has sparsity-down: give only arguments that change what",
        ),
        (
            {"weights": "samples"},
            "links.slow has weights: give only arguments that change what clien",
        ),
        ({}, "links.slow has nothing: give only arguments that change what clients send"),
    ],
)
def test_link_arguments_that_do_not_change_what_clients_send_are_refused(own, error):
    with pytest.raises(ValueError, match=error):
        strategies.build("stc", {"links": {"slow": own}})
