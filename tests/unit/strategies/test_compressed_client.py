"""The client's end of the compressed strategies: its state, its replies, invalid messages."""

import struct

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, RecordDict

import strategies
from strategies.compression.sync_protocol import Version, decode_updates
from strategies.rounds.client_memory import ClientMemory
from strategies.rounds.model import Model
from tests.support.compressed_network import (
    SIZE,
    Network,
    change_entry,
    flatten,
    model_record,
    payload,
    sent,
    state_bytes,
    trained,
)

pytestmark = pytest.mark.usefixtures("server_identity")

zeros = np.zeros(SIZE, np.float32)


def stc(clients=1, **arguments):
    return Network("stc", clients, **{"sparsity_up": 0.05, "sparsity_down": 0.05, **arguments})


def client_of_another_process():
    return strategies.client_mod("stc", {"sparsity_up": 0.05, "sparsity_down": 0.05})


def after_rounds(rounds=2, clients=1, **arguments):
    """Return a network whose clients have trained for some rounds."""
    network = stc(clients, **arguments)
    for _ in range(rounds):
        network.run_round({client: network.random_change() for client in range(clients)})
    return network


# Replies.


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38, 1e22])
def test_diverged_training_is_reported_and_changes_no_state(value):
    """A rejected update would be added to the next, which would then be rejected as well."""
    network = after_rounds(2)
    before = state_bytes(network.contexts[0])
    (message,) = network.configure(0)
    reply = network.train(message, np.full(SIZE, value, np.float32))
    assert set(reply.content) == {"fedavg-strategies"}
    assert payload(reply) == network.reply_with(2)
    assert state_bytes(network.contexts[0]) == before
    network.aggregate([reply])
    network.run_round({0: network.random_change()})
    assert not network.outcome.rejected, "the next training is as usual"


def test_diverged_training_changes_no_state_of_the_handler_either():
    """Momentum of 1e25 is finite, and at 0.9 it would take 70 rounds to fall below 2^53."""
    network = after_rounds(2)
    context = network.contexts[0]
    context.state["momentum"] = model_record(zeros)
    before = state_bytes(context)
    (message,) = network.configure(0)

    def fit(message, context):
        huge = np.full(SIZE, 1e25, np.float32)
        context.state["momentum"] = model_record(huge)
        return trained(message, model_record(huge))

    reply = network.client_mod(message, context, fit)
    assert payload(reply) == network.reply_with(2)
    assert state_bytes(network.contexts[0]) == before


def test_trained_arrays_of_another_float_type_are_cast():
    """A client mod, such as one that adds noise, may return float64."""
    network, twin = after_rounds(1), after_rounds(1)
    change = network.random_change()

    def fit(dtype):
        def call_next(message, _):
            after = model_record(flatten(message.content["arrays"]) + change)
            arrays = {name: Array(array.numpy().astype(dtype)) for name, array in after.items()}
            return trained(message, ArrayRecord(arrays))

        return call_next

    (wide,) = network.configure(0)
    (narrow,) = twin.configure(0)
    replies = [
        network.client_mod(wide, network.contexts[0], fit(np.float64)),
        twin.client_mod(narrow, twin.contexts[0], fit(np.float32)),
    ]
    assert payload(replies[0]) == payload(replies[1])


def test_other_records_of_a_reply_are_kept():
    network, own = stc(), model_record(zeros)
    (message,) = network.configure(0)

    def fit(message, _):
        reply = trained(message, message.content["arrays"])
        reply.content["own"] = own
        return reply

    reply = network.client_mod(message, network.contexts[0], fit)
    assert set(reply.content) == {"fedavg-strategies", "metrics", "own"}
    assert reply.content["own"] is own


def objects(message):
    """Return how many objects Flower makes of a message: each costs a request on both ways."""
    children = message.children or {}
    return 1 + sum(objects(child) for child in children.values())


@pytest.mark.parametrize("name", ["stc", "signsgd"])
def test_message_with_updates_is_four_objects_and_its_reply_six(name):
    """The message, its dictionary of records, and two records; in one are an array and a chunk."""
    network = Network(name, clients=1)
    network.run_round({0: network.random_change()})
    (message,) = network.configure(0)
    assert objects(message) == 4
    assert objects(network.train(message, network.random_change())) == 6


# State.


def test_training_that_raises_changes_no_state():
    network = after_rounds(2)
    before = state_bytes(network.contexts[0])
    (message,) = network.configure(0)

    def fails(message, _):
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        network.client_mod(message, network.contexts[0], fails)
    assert state_bytes(network.contexts[0]) == before


def test_message_of_an_earlier_round_is_an_error():
    network = stc()
    (late,) = network.configure(0)
    network.run_round({0: network.random_change()})
    before = state_bytes(network.contexts[0])
    with pytest.raises(ValueError, match=r"a message of round 1, after one of round 2"):
        network.train(late, network.random_change())
    assert state_bytes(network.contexts[0]) == before


def test_update_that_a_restored_old_state_holds_is_not_sent_again():
    """Two messages at once: the older one's state is written last."""
    network = stc()
    network.run_round({0: network.random_change()})
    past = dict(network.contexts[0].state)
    network.run_round({0: network.random_change()})
    network.contexts[0].state = RecordDict(past)
    network.client_mod = client_of_another_process()
    network.run_round(
        {0: network.random_change()}
    )  # its model is old, too: it requests the current model
    (message,) = network.configure(0)
    change = network.random_change()
    found = sent(network.train(message, change))
    np.testing.assert_allclose(found + network.residual(0), change, atol=1e-6)


OTHER_ARRAYS = ArrayRecord({"steps": Array(np.zeros(3, np.float32))})


@pytest.mark.parametrize("arrays", [OTHER_ARRAYS, model_record(zeros)], ids=["other", "alike"])
def test_model_of_another_run_in_this_process_is_not_built_upon(monkeypatch, arrays):
    network = after_rounds(2, clients=2)
    message, model = missing_two(network), flatten(network.model)
    clients = network.client_mod.__self__._clients
    monkeypatch.setattr(clients, "_built", (Version(4, 7), Model.read(arrays)))
    trained_from = []

    def fit(message, _):
        trained_from.append(flatten(message.content["arrays"]))
        return trained(message, message.content["arrays"])

    network.client_mod(message, network.contexts[0], fit)
    assert np.array_equal(trained_from, [model])


def test_written_memory_replaces_the_previous_memory():
    """Otherwise the residual of an earlier training would be sent in the next."""
    network = after_rounds(1)
    state = network.contexts[0].state
    assert ClientMemory.read(state).vectors
    ClientMemory(codec="another").write(state)
    assert ClientMemory.read(state) == ClientMemory(codec="another")


# Invalid messages.


def replace(message, name, data):
    change_entry(message, name, data)


def head(protocol=7, codec=0, settled=0, refused=0, number=0, fingerprint=0):
    return struct.pack("<BIIBII", protocol, codec, settled, refused, number, fingerprint)


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("head", None, "no bytes 'head' in the ConfigRecord"),
        ("head", "text", "no bytes 'head' in the ConfigRecord"),
        ("updates", 1, "no bytes 'updates' in the ConfigRecord"),
        ("head", head()[:-1], "the head has 17 bytes, not 18"),
        ("head", head(refused=2), "the flag of a refusal is 2"),
        ("head", head(protocol=2), "protocol 2, this end"),
        ("updates", b"abc", "ends within an update's head"),
    ],
)
def test_message_that_cannot_be_read_is_an_error_and_changes_no_state(name, data, reason):
    network = after_rounds(2)
    before = state_bytes(network.contexts[0])
    (message,) = network.configure(0)
    replace(message, name, data)
    with pytest.raises(ValueError, match=reason):
        network.train(message, network.random_change())
    assert state_bytes(network.contexts[0]) == before


def test_model_of_a_server_with_another_codec_is_an_error():
    network = stc()
    (message,) = network.configure(0)
    replace(message, "head", head())
    with pytest.raises(ValueError, match="codec mismatch between server and client"):
        network.train(message, network.random_change())


@pytest.mark.parametrize("field", ["number", "fingerprint"])
def test_updates_that_lead_to_another_version_are_answered_with_a_request(field):
    network = after_rounds(2)
    before = state_bytes(network.contexts[0])
    (message,) = network.configure(0)
    found = struct.unpack("<BIIBII", message.content["fedavg-strategies"]["head"])
    names = ("protocol", "codec", "settled", "refused", "number", "fingerprint")
    named = dict(zip(names, found, strict=True))
    replace(message, "head", head(**{**named, field: named[field] ^ 1}))
    reply = network.train(message, network.random_change())
    assert payload(reply) == network.reply_with(1)
    assert state_bytes(network.contexts[0]) == before


def missing_two(network):
    """Return a message that has the updates of two rounds, for client 0."""
    network.run_round({1: network.random_change()})
    network.run_round({1: network.random_change()})
    (message,) = network.configure(0)
    assert len(decode_updates(message.content["fedavg-strategies"]["updates"])) == 3
    return message


@pytest.mark.parametrize("name", ["eden", "topk"])
def test_client_that_is_always_sent_the_whole_model_keeps_none(name):
    network = Network(name, 1)
    for _ in range(3):
        network.run_round({0: network.random_change()})
        assert not network.outcome.rejected
        assert "strategy-model" not in network.contexts[0].state
    (message,) = network.configure(0)
    assert "arrays" in message.content
