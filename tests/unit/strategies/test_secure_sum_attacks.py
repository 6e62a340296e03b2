"""A server that cheats, and clients that do: what a client refuses, and what the server notices."""

import copy

import numpy as np
import pytest
from flwr.app import Context, Message, RecordDict

from fedavg_app.client.mods import with_mods
from fedavg_app.config import RunConfig
from strategies import compression_mod
from strategies.secure import identity
from strategies.secure.messages import (
    KEYS,
    SEALED,
    SIGNED_KEYS,
    Stage,
    read_rows,
    read_survivors,
    write_rows,
    write_survivors,
)
from tests.support.compressed_network import FIRST_NODE, flatten, replace_payload
from tests.support.secure_network import SecureNetwork, change_request, identities, request_of

pytestmark = pytest.mark.usefixtures("server_identity")

CLIENTS = 4  # t = 3


def changed_keys(change, size=KEYS):
    """Return what changes the rows of keys that clients are sent."""

    def attack(message, request):
        rows = read_rows(request.body, size)
        change(rows)
        change_request(message, body=write_rows(rows))

    return Stage.SHARE, attack


def few(rows):
    del rows[1], rows[2]


def twice(rows):
    rows[1] = rows[2]


def its_own(rows):
    rows[0] = rows[0][::-1]


def few_shares(message, request):
    grid, rows = request.body[:12], read_rows(request.body[12:], SEALED)
    change_request(message, body=grid + write_rows({place: rows[place] for place in (0, 1)}))


def unknown_share(message, request):
    grid, rows = request.body[:12], read_rows(request.body[12:], SEALED)
    change_request(message, body=grid + write_rows({**rows, 9: rows[1]}))


def few_survivors(message, request):
    change_request(message, body=write_survivors([0, 1], {}))


def unknown_survivor(message, request):
    change_request(message, body=write_survivors([0, 1, 2, 9], {}))


def cohort_of_one(message, request):
    change_request(message, cohort=1)


def other_cohort(message, request):
    change_request(message, cohort=3)


def other_round(message, request):
    change_request(message, number=request.number + 1)


def unmask_now(message, request):
    change_request(message, stage=Stage.UNMASK, body=write_survivors(range(CLIENTS), {}))


ATTACKS = {
    "a cohort of one": (Stage.ADVERTISE, cohort_of_one, "over 1 client says what that client sent"),
    "fewer keys than t": (*changed_keys(few), "2 of 4 clients are left, 3 are needed"),
    "a key twice": (*changed_keys(twice), "sends a key twice"),
    "another key than its own": (*changed_keys(its_own), "another key in place of this client's"),
    "another cohort": (Stage.SHARE, other_cohort, "stage SHARE of round 2 is not due"),
    "another round": (Stage.SHARE, other_round, "a stage of round 3 in a message of round 2"),
    "fewer shares than t": (Stage.MASK, few_shares, "2 of 4 clients are left, 3 are needed"),
    "an unknown client's share": (Stage.MASK, unknown_share, "a client that was not there"),
    "unmasking before the sum": (Stage.MASK, unmask_now, "stage UNMASK of round 2 is not due"),
    "fewer survivors than t": (Stage.UNMASK, few_survivors, "2 of 4 clients are left, 3 are"),
    "an unknown survivor": (Stage.UNMASK, unknown_survivor, "a client that was not there"),
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_client_refuses(attack):
    stage, change, reason = attack
    network = SecureNetwork(CLIENTS, sparsity=1.0)
    changes = {client: network.random_change() for client in range(CLIENTS)}
    network.sum_round(changes)

    def attack_first_client(message):
        request = request_of(message)
        if message.metadata.dst_node_id == FIRST_NODE and request.stage == stage:
            change(message, request)

    network.sum_round(changes, change_message=attack_first_client)
    assert reason in network.errors[0]
    assert set(network.errors) == {0}
    if stage < Stage.UNMASK:
        assert not network.replies[Stage.UNMASK].get(0)


def test_client_answers_no_stage_twice():
    network = SecureNetwork(CLIENTS, sparsity=1.0)
    changes = {client: network.random_change() for client in range(CLIENTS)}
    for stage in (Stage.ADVERTISE, Stage.SHARE, Stage.MASK, Stage.UNMASK):

        def ask_twice(message, stage=stage):
            if message.metadata.dst_node_id == FIRST_NODE and request_of(message).stage == stage:
                network.train(copy.copy(message), changes[0])

        network.sum_round(changes, change_message=ask_twice)
        expected = "a second sum of round" if stage == Stage.ADVERTISE else "is not due"
        assert expected in network.errors[0]


# With signatures, a server that cheats learns no more than one that does not.


@pytest.fixture
def nodes(tmp_path):
    return identities(tmp_path, CLIENTS + 1)


def signed_network(nodes):
    return SecureNetwork(CLIENTS, nodes[:CLIENTS], sparsity=1.0, signed=True)


def run_with(network, stage, change):
    """Run two rounds, of which ``change`` changes the second one's messages of a stage."""
    changes = {client: network.random_change() for client in range(CLIENTS)}
    network.sum_round(changes)

    def attack(message):
        if request_of(message).stage == stage:
            change(message, request_of(message))

    return network.sum_round(changes, change_message=attack)


def test_signed_sum_is_the_sum(nodes):
    network = signed_network(nodes)
    for lost in ({}, {Stage.MASK: [1]}, {Stage.SIGN: [2]}, {Stage.UNMASK: [3]}):
        before = network.model
        changes = {client: network.random_change() for client in range(CLIENTS)}
        network.sum_round(changes, lost)
        in_sum = [c for c in range(CLIENTS) if c not in lost.get(Stage.MASK, [])]
        assert not network.errors
        expected = network.model_after(before, in_sum)
        np.testing.assert_array_equal(flatten(network.model), expected)


def test_server_cannot_put_a_key_of_its_own_in_place_of_a_clients(nodes):
    def replace_key(message, request):
        rows = read_rows(request.body, SIGNED_KEYS)
        if request.place != 1:
            rows[1] = bytes(32) + rows[1][32:]
            change_request(message, body=write_rows(rows))

    network = signed_network(nodes)
    assert run_with(network, Stage.SHARE, replace_key).model is None
    assert "a key that its device has not signed" in network.errors[0]


def test_server_cannot_send_a_key_of_an_earlier_round_again(nodes):
    network, earlier = signed_network(nodes), {}
    changes = {client: network.random_change() for client in range(CLIENTS)}

    def replay(message):
        request = request_of(message)
        if request.stage == Stage.SHARE:
            rows = read_rows(request.body, SIGNED_KEYS)
            if not earlier:
                earlier.update(rows)
            elif request.place != 1:
                change_request(message, body=write_rows({**rows, 1: earlier[1]}))

    network.sum_round(changes, change_message=replay)
    network.sum_round(changes, change_message=replay)
    assert "a key that its device has not signed" in network.errors[0]


def test_key_that_was_signed_long_ago_is_refused(nodes, monkeypatch):
    monkeypatch.setattr(identity, "MAX_SECONDS", -1)
    network = signed_network(nodes)
    network.sum_round({client: network.random_change() for client in range(CLIENTS)})
    assert "a device's key was signed long ago" in network.errors[0]


def test_clients_wrong_signature_of_the_survivors_stops_nobody(nodes):
    network = signed_network(nodes)
    changes = {client: network.random_change() for client in range(CLIENTS)}
    network.spoil = {(Stage.SIGN, 2): lambda reply: replace_payload(reply, bytes(64))}
    before = network.model
    network.sum_round(changes)
    assert not network.errors
    expected = network.model_after(before, range(CLIENTS))
    np.testing.assert_array_equal(flatten(network.model), expected)


def test_server_cannot_add_a_device(nodes, tmp_path):
    peers = tmp_path / "peers"
    peers.write_text("".join(peers.read_text().splitlines(keepends=True)[1:]))
    network = signed_network(nodes)
    changes = {client: network.random_change() for client in range(CLIENTS)}
    assert network.sum_round(changes).model is None
    assert "a device takes part that is not in this node's peers" in network.errors[1]


def test_server_cannot_show_two_sets_of_survivors(nodes):
    """Shares of both kinds for client 3 would unmask its numbers alone."""

    def split_view(message, request):
        if request.place < 2:
            _, signatures = read_survivors(request.body)
            signatures = {place: signatures[place] for place in range(3)}
            change_request(message, body=write_survivors([0, 1, 2], signatures))

    network = signed_network(nodes)
    assert run_with(network, Stage.UNMASK, split_view).model is None
    assert "a signature of the set of survivors is wrong" in network.errors[0]


def test_server_cannot_unmask_with_fewer_than_t_signatures(nodes):
    def unsigned(message, request):
        _, signatures = read_survivors(request.body)
        change_request(message, body=write_survivors(range(CLIENTS), {0: signatures[0]}))

    network = signed_network(nodes)
    assert run_with(network, Stage.UNMASK, unsigned).model is None
    assert "1 of 4 clients are left, 3 are needed" in network.errors[0]


def test_server_cannot_talk_a_device_out_of_signing(nodes):
    network = SecureNetwork(CLIENTS, nodes, sparsity=1.0)
    network.sum_round({client: network.random_change() for client in range(CLIENTS)})
    assert "sums that are not signed, and this node has a signing-key" in network.errors[0]


def test_device_without_a_key_does_not_take_part_in_signed_sums():
    network = SecureNetwork(CLIENTS, sparsity=1.0, signed=True)
    network.sum_round({client: network.random_change() for client in range(CLIENTS)})
    assert "give signing-key and peers in the node config" in network.errors[0]


@pytest.mark.parametrize("name", ["stc", "compressed", "fedavg"])
def test_device_with_a_key_answers_no_other_method(nodes, name):
    """A server, or an app, that asks it for a whole model gets nothing."""
    context = Context(1, 10, dict(nodes[0]), RecordDict(), {})
    for kind in ("train", "train.gradient", "evaluate"):
        message = Message(RecordDict(), dst_node_id=10, message_type=kind)
        with pytest.raises(ValueError, match="it takes part in signed secure sums only"):
            compression_mod(message, context, lambda *_: pytest.fail("it was asked"))
        run_config = {**RunConfig(strategy=name).model_dump(by_alias=True)}
        trained = with_mods(lambda *_: pytest.fail("it was asked"))
        with pytest.raises(Exception, match="it takes part in signed secure sums only"):
            trained(message, Context(1, 10, dict(nodes[0]), RecordDict(), run_config))
