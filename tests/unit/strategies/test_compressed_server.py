"""The server's end of the compressed strategies, with real clients."""

import numpy as np
import pytest

from strategies.compression.decoded_update import DenseUpdate, SparseUpdate
from strategies.compression.floats import Float32
from strategies.compression.sparse import Sparse
from strategies.compression.sync_protocol import Payload, ReplyStatus
from strategies.compression.ternary import Ternary
from strategies.rounds.flower_arrays import message_bytes
from strategies.rounds.reply_errors import DivergedReplyError, ReplyError, ResyncError
from strategies.rounds.values import ReplyBounds, RunSettings
from tests.support.compressed_network import (
    REPLY_HEAD_BYTES,
    SIZE,
    Network,
    flatten,
    model_record,
    payload,
    sent,
)
from tests.support.compressed_network import replace_payload as replace
from tests.support.compression_reference import generator
from tests.support.replies import reasons

pytestmark = pytest.mark.usefixtures("server_identity")

RANDOM = {"name": "strategies.compression.random_entries:RandomEntries", "sparsity": 0.1}
ARGUMENTS = {
    "stc": {"sparsity_up": 0.05, "sparsity_down": 0.05},
    "topk": {"sparsity_up": 0.05, "sparsity_down": 0.02},
    "signsgd": {},
    "compressed": {
        "uplink": {"name": "sparse", "sparsity": 0.05},
        "downlink": {"name": "ternary", "sparsity": 0.05, "scope": "model"},
    },
    # Neither end draws the other's random numbers.
    "stochastic": {"uplink": RANDOM, "downlink": RANDOM},
}
zeros = np.zeros(SIZE, np.float32)


def stc(clients=1, **further):
    return Network("stc", clients=clients, **ARGUMENTS["stc"], **further)


def carries_full_model(message):
    assert ("arrays" in message.content) != ("updates" in message.content["fedavg-strategies"])
    return "arrays" in message.content


def head_of(message):
    """Return (settled round, version's number, fingerprint) of a training message."""
    head = message.content["fedavg-strategies"]["head"]
    assert head[0] == 7
    return tuple(int.from_bytes(head[at : at + 4], "little") for at in (5, 10, 14))


# Both ends hold the same model, and every update counts once.


@pytest.mark.parametrize("name", ARGUMENTS)
def test_clients_train_on_the_servers_model_to_the_last_bit(name):
    arguments = ARGUMENTS[name]
    network = Network(
        "compressed" if "uplink" in arguments else name,
        6,
        settings=RunSettings(seed=5),
        **arguments,
    )
    for _ in range(30):
        before = flatten(network.model)
        chosen = network.rng.choice(6, size=2, replace=False)
        network.run_round({int(client): network.random_change() for client in chosen})
        for client in chosen:
            assert np.array_equal(network.trained_from[client], before)
        assert not np.array_equal(flatten(network.model), before)


def test_acknowledgement_is_kept_when_the_version_is_not():
    network = stc()
    change = network.random_change()
    first = sent(network.run_round({0: change})[0])
    del network.contexts[0].state["strategy-model"]  # the residual is still there
    (message,) = network.configure(0)
    network.aggregate([network.train(message, change)])
    assert isinstance(network.outcome.rejected[10], ResyncError)
    (message,) = network.configure(0)
    assert carries_full_model(message)
    assert head_of(message)[0] == 1
    second = sent(network.train(message, zeros))
    np.testing.assert_allclose(first + second + network.residual(0), change, atol=1e-6)


@pytest.mark.parametrize("learning_rate", [1e308, 1e30])
def test_round_that_would_overflow_is_taken_back(learning_rate):
    """Immediately, or once the changes of the next rounds are added."""
    optimizer = {"name": "sgd", "learning_rate": learning_rate, "momentum": 0.0}
    network = stc(server_optimizer=optimizer)
    model, change = network.model, np.full(SIZE, 1e8, np.float32)
    unused = sent(network.run_round({0: change})[0])
    assert "give smaller rates in strategy-args" in reasons(network.outcome)[10]
    assert network.model is model
    # Nothing is acknowledged: the client sends it again.
    np.testing.assert_allclose(sent(network.run_round({0: zeros})[0]), unused)


def test_updates_of_a_round_with_too_few_replies_are_sent_again():
    """The server must not acknowledge them: two rounds' changes arrive in the third."""
    network, twin = stc(clients=2, settings=RunSettings(min_replies=2)), stc(clients=2)
    changes = [{client: network.random_change() for client in range(2)} for _ in range(3)]
    for server in (network, twin):
        server.run_round(changes[0])
    model, residual = network.model, network.strategy.residual.copy()
    version = head_of(network.configure(0)[0])[1:]
    kept = network.residual(0).copy()

    (alone,) = network.run_round({0: changes[1][0]})
    assert reasons(network.outcome) == {10: "too few usable replies: 1, min-replies is 2"}
    assert network.model is model
    assert np.array_equal(network.strategy.residual, residual)
    assert network.outcome.formula_bits_up == 0
    unused = sent(alone)
    assert unused.any()
    np.testing.assert_allclose(unused + network.residual(0), kept + changes[1][0], atol=1e-6)

    assert {head_of(message)[1:] for message in network.configure(0, 1)} == {version}
    network.run_round(changes[2])
    assert network.outcome.rejected == {}
    # The twin had no such round: client 0's two changes are one there.
    twin.run_round({0: changes[1][0] + changes[2][0], 1: changes[2][1]})
    np.testing.assert_allclose(flatten(network.model), flatten(twin.model), atol=1e-6)
    np.testing.assert_allclose(network.residual(0), twin.residual(0), atol=1e-6)


def test_model_that_the_server_replaced_is_sent_whole():
    network = stc()
    network.run_round({0: network.random_change()})
    network.model = model_record(network.random_change())
    (message,) = network.configure(0)
    assert carries_full_model(message)
    network.aggregate([network.train(message, zeros)])
    assert np.array_equal(network.trained_from[0], flatten(message.content["arrays"]))


# Evaluation.


@pytest.mark.parametrize("name", ["stc", "topk", "signsgd", "qsgd"])
def test_clients_evaluate_the_servers_model_and_are_sent_what_they_miss(name):
    """With qsgd's downlink that is the whole model, as for a client that has not trained."""
    network = Network(name, clients=3, **ARGUMENTS.get(name, {}))
    for _ in range(3):
        network.run_round({0: network.random_change(), 1: network.random_change()})
        whole, found, outcome = network.evaluate(0, 1, 2)
        assert not outcome.rejected
        for vector in found:
            np.testing.assert_array_equal(vector, flatten(network.model))
    assert whole == [name == "qsgd"] * 2 + [True]
    (message,) = network.configure(2)
    assert "arrays" in message.content
    network.aggregate([network.train(message, network.random_change())])
    assert not network.outcome.rejected


def test_evaluations_do_not_change_the_bytes_of_trainings():
    """The history counts what trainings are sent, and must not depend on evaluations."""
    networks = [stc(clients=3) for _ in range(2)]
    sizes = ([], [])
    for number in range(6):
        for network, found in zip(networks, sizes, strict=True):
            messages = network.configure(number % 3, (number + 1) % 3)
            found += map(message_bytes, messages)
            network.aggregate(
                [network.train(message, network.random_change()) for message in messages]
            )
        networks[0].evaluate(0, 1, 2)
    assert sizes[0] == sizes[1]
    assert networks[0].model == networks[1].model


def test_client_that_cannot_follow_does_not_evaluate_and_is_sent_the_model_next():
    network = stc(clients=1)
    network.run_round({0: network.random_change()})
    network.contexts[0] = network.new_context(0)
    _, found, outcome = network.evaluate(0)
    assert found == []
    assert isinstance(outcome.rejected[10], ResyncError)
    whole, found, outcome = network.evaluate(0)
    assert whole == [True]
    np.testing.assert_array_equal(found[0], flatten(network.model))
    assert not outcome.rejected


def test_evaluation_acknowledges_no_update():
    """What the client sent in a lost reply is still in its residual."""
    network = stc()
    change = network.random_change()
    (message,) = network.configure(0)
    lost = sent(network.train(message, change))
    network.evaluate(0)
    (message,) = network.configure(0)
    second = sent(network.train(message, zeros))
    np.testing.assert_allclose(second, lost)
    np.testing.assert_allclose(second + network.residual(0), change, atol=1e-6)


# Replies that are rejected.


def update_of_all_entries(network):
    """Return a payload with all entries, where the sparsity is 0.05."""
    vector = np.arange(1, SIZE + 1, dtype=np.float32)
    return network.reply_with(0, Ternary(1.0).encode(vector, network.layout, generator()))


def of_another_codec(reply, network):
    """Let top-k's client reply to STC's server."""
    other = Network("topk", **ARGUMENTS["topk"])
    vector, layout = network.random_change(), network.layout
    update = Sparse(0.05).encode(vector, layout, generator())
    replace(reply, Payload(0, other.strategy.codec.digest, 1, update).encode())


def no_examples(reply, number):
    reply.content["metrics"]["num-examples"] = number


def status_3(network):
    data = network.reply_with(0)
    return data[:1] + b"\3" + data[2:]


def with_huge_magnitude(reply):
    data = bytearray(payload(reply))
    data[15:19] = np.float32(1e30).tobytes()
    return bytes(data)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda reply, _: reply.content.pop("fedavg-strategies"), "no ArrayRecord 'fedavg-strat"),
        (lambda reply, _: reply.content["metrics"].pop("num-examples"), "is a NoneType"),
        (lambda reply, _: reply.content["fedavg-strategies"].pop("payload"), "no array 'payload'"),
        (lambda reply, _: no_examples(reply, 0.5), "is 0.5, must be at"),
        (lambda reply, _: replace(reply, b""), "its head alone takes 10"),
        (lambda reply, _: replace(reply, b"\x04" + bytes(20)), "protocol 4, this end speaks 7"),
        (lambda reply, net: replace(reply, net.reply_with(0, b"", 99)), "answers round 99, and"),
        (of_another_codec, "codec mismatch between client and server: give both the same"),
        (lambda reply, _: replace(reply, payload(reply)[:-1]), "undecodable update"),
        (lambda reply, net: replace(reply, update_of_all_entries(net)), "k = 131, the sparsity"),
        (lambda reply, net: replace(reply, status_3(net)), "unknown status 3"),
        (lambda reply, net: replace(reply, net.reply_with(1) + b"a"), "bytes follow a status"),
        (lambda reply, net: replace(reply, net.reply_with(1)), "the model, which it was just sen"),
        (lambda reply, _: replace(reply, with_huge_magnitude(reply)), "changes a weight by"),
    ],
    ids=[
        "no record", "no examples", "no payload",
        "half an example", "empty", "protocol", "future round",
        "another codec", "truncated", "too many", "status",
        "bytes after a request", "request", "huge",
    ],
)  # fmt: skip
def test_invalid_reply_is_rejected_and_the_others_are_used(spoil, reason):
    network, without = stc(clients=2), stc(clients=2)
    changes = {client: network.random_change() for client in range(2)}
    network.run_round(changes, spoil=lambda replies: spoil(replies[0], network))
    assert list(network.outcome.rejected) == [10]
    assert reason in reasons(network.outcome)[10]
    assert network.outcome.num_resyncing == 0, "its next round would be no different, for ever"
    without.run_round({1: changes[1]})
    assert np.array_equal(flatten(network.model), flatten(without.model))


def test_bounds_apply_to_decoded_updates():
    """Four entries of a ternary update of magnitude 2.25 have the norm 4.5."""
    network = Network("stc", clients=2, sparsity_up=0.03, sparsity_down=1.0, scope="model")
    long, short = np.zeros(SIZE, np.float32), np.zeros(SIZE, np.float32)
    long[:5] = [1, -2, 3, -2, 2]  # the largest four: 0.03 * 131, rounded up
    short[7:11] = [1, -1, 1, -1]
    network.runner.settings = RunSettings(bounds=ReplyBounds(max_update_norm=4.4))
    before = flatten(network.model)
    network.run_round({0: long, 1: short})
    assert reasons(network.outcome) == {10: "the update's norm is 4.5, max-update-norm is 4.4"}
    np.testing.assert_allclose(flatten(network.model) - before, short, atol=1e-6)
    bounds = ReplyBounds(max_update_norm=4.6, max_examples=10)
    network.runner.settings = RunSettings(bounds=bounds)
    network.run_round({0: zeros, 1: short}, {0: 10, 1: 11})
    assert reasons(network.outcome) == {11: "num-examples is 11, max-examples is 10"}


@pytest.mark.parametrize("name", ["stc", "topk"])
def test_update_above_the_norm_bound_clears_its_clients_memory_and_affects_no_later_round(name):
    """In the residual it would raise every later update above the bound as well."""
    network = Network(name, clients=2, sparsity_up=0.05)
    network.runner.settings = RunSettings(bounds=ReplyBounds(max_update_norm=10.0))
    small = [0.1 * network.random_change() for _ in range(4)]
    network.run_round({0: small[0], 1: small[0]})
    network.run_round({0: 100 * network.random_change(), 1: small[0]})
    assert list(network.outcome.rejected) == [10]
    network.configure(0, 1)  # the message that says so is lost, and so is the reply to the next
    network.train(network.configure(0, 1)[0], small[1])
    replies = network.run_round({0: small[2], 1: small[0]})
    assert not network.outcome.rejected
    data = payload(replies[0])[REPLY_HEAD_BYTES:]
    update = network.strategy.codec.uplink.decode(data, network.layout).to_dense()
    np.testing.assert_allclose(update + network.residual(0), small[1] + small[2], atol=1e-6)


# Compressors of other packages.

INVALID = b"not an update"


class Faulty(Float32):
    """A compressor of another package that does not check bytes well."""

    fault = "MemoryError"

    def decode(self, data, layout):
        if data != INVALID:
            return super().decode(data, layout)
        values = np.ones(layout.size, np.float32)
        if self.fault == "length":
            return DenseUpdate(values[:-1])
        if self.fault == "position":
            return SparseUpdate(layout.size, np.array([3, layout.size]), values[:2])
        if self.fault == "nan":
            values[5] = np.nan
            return DenseUpdate(values)
        raise MemoryError("line one\nline two")


@pytest.mark.parametrize(
    ("fault", "kind", "reason"),
    [
        ("MemoryError", ReplyError, "undecodable update: line one line two"),
        ("length", ReplyError, "undecodable update: the update has 130 entries, not 131"),
        (
            "position",
            ReplyError,
            "undecodable update: a position lies beyond the vector's 131 entries",
        ),
        ("nan", DivergedReplyError, "the update changes a weight by nan"),
    ],
)
def test_reply_that_a_faulty_compressor_decodes_wrongly_is_rejected(
    monkeypatch, fault, kind, reason
):
    monkeypatch.setattr(Faulty, "fault", fault)
    uplink, downlink = f"{__name__}:Faulty", {"name": "sparse", "sparsity": 0.1}
    network, without = (
        Network("compressed", clients=2, uplink=uplink, downlink=downlink) for _ in range(2)
    )
    changes = {client: network.random_change() for client in range(2)}

    def spoil(replies):
        replace(replies[0], network.reply_with(ReplyStatus.UPDATE, INVALID))

    network.run_round(changes, spoil=spoil)
    assert type(network.outcome.rejected[10]) is kind
    assert reasons(network.outcome) == {10: reason}
    without.run_round({1: changes[1]})
    assert np.array_equal(flatten(network.model), flatten(without.model))
    network.run_round({0: network.random_change(), 1: network.random_change()})
    assert not network.outcome.rejected, "the run continues"


# Theory, and what cannot be used.


def test_theory_bits_count_every_update_that_a_client_missed():
    network = Network("stc", clients=2, sparsity_up=0.25, sparsity_down=0.25)
    full, sparse = 32 * SIZE, SIZE * 0.25 * (1 + 1 + 1 / (1 - 0.75**2))  # b* = 1 at p = 0.25
    network.run_round({0: network.random_change(), 1: network.random_change()})
    assert network.bits_down == 2 * full
    assert network.outcome.formula_bits_up == pytest.approx(2 * sparse)
    for expected in (1, 1, 1):
        network.run_round({0: network.random_change()})
        assert network.bits_down == pytest.approx(expected * sparse)
    network.run_round({0: network.random_change(), 1: network.random_change()})
    assert network.bits_down == pytest.approx((1 + 4) * sparse)
    for _ in range(60):
        network.run_round({0: network.random_change()})
    network.configure(1)
    assert network.bits_down == full
