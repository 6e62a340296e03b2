"""The protocol of the compressed strategies: models in step, nothing lost, nothing twice."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

import strategies
from strategies.compression.ternary import Ternary, ternarise
from strategies.limits import Limits
from strategies.synced import encode_reply
from tests.strategies.network import SHAPES, SIZE, Network, flat, record
from tests.strategies.replies import cohort

ALL = ["stc", "topk", "signsgd"]
ARGUMENTS = {
    "stc": {"sparsity_up": 0.05, "sparsity_down": 0.05},
    "topk": {"sparsity_up": 0.05, "sparsity_down": 0.02},
    "signsgd": {},
}


def decoded(network, reply):
    """Return what the server reads in a reply, decoded apart from it."""
    data = reply.content["update"]["payload"].data[6:]
    return Ternary.decode(data, network.strategy.layout.blocks("tensor")).to_dense()


@pytest.mark.parametrize("name", ALL)
def test_every_client_trains_on_the_servers_model_to_the_last_bit(name):
    network = Network(name, clients=6, **ARGUMENTS[name])
    for _ in range(30):
        before = flat(network.model)
        taking_part = network.rng.choice(6, size=2, replace=False)
        network.step({int(client): network.draw() for client in taking_part})
        for client in taking_part:
            assert np.array_equal(network.trained_from[client], before)


def test_what_is_lost_comes_back_and_nothing_counts_twice():
    """Replies are dropped or refused at random, clients forget, and every sum still adds up."""
    network = Network("stc", clients=5, seed=3, **ARGUMENTS["stc"])
    done = {client: np.zeros(SIZE) for client in range(5)}
    accepted = {client: np.zeros(SIZE) for client in range(5)}
    pending = {client: np.zeros(SIZE) for client in range(5)}
    total = np.zeros(SIZE)
    start = flat(network.model).astype(np.float64)
    lost = forgotten = 0
    for _ in range(200):
        taking_part = [int(c) for c in network.rng.choice(5, size=3, replace=False)]
        if network.rng.random() < 0.1:
            client = taking_part[0]
            network.forget(client)
            forgotten += 1
            # What it had not sent is gone with its memory.
            done[client], pending[client] = accepted[client].copy(), np.zeros(SIZE)
        arriving, updates = [], []
        for message in network.send(*taking_part):
            client = message.metadata.dst_node_id - 10
            change = network.draw()
            reply = network.answer(message, change)
            if "metrics" in reply.content:  # it trained
                done[client] += change
                pending[client] = decoded(network, reply)
            fate = network.rng.random()
            if fate < 0.2:
                lost += 1
                continue
            if fate < 0.3 and "metrics" in reply.content:
                reply.content["metrics"]["num-examples"] = 0  # the server refuses it
                lost += 1
            elif "metrics" in reply.content:
                updates.append(pending[client])
                accepted[client] += pending[client]
                pending[client] = np.zeros(SIZE)
            arriving.append(reply)
        network.receive(arriving)
        total += np.mean(updates, axis=0) if updates else 0
    assert lost > 50
    assert forgotten > 5
    for client in range(5):
        kept = network.residual(client) + pending[client]
        np.testing.assert_allclose(accepted[client] + kept, done[client], atol=1e-3)
    moved = flat(network.model) - start
    np.testing.assert_allclose(moved + network.strategy.residual, total, atol=1e-3)


def test_without_the_acknowledgement_an_update_counts_twice():
    """What the test above guards against: a server that forgets what it took."""
    network = Network("stc", clients=1, **ARGUMENTS["stc"])
    change = network.draw()
    first = decoded(network, network.step({0: change})[0])
    (message,) = network.send(0)
    head = bytearray(message.content["sync"]["head"].data)
    assert head[1:5] == b"\1\0\0\0"
    head[1:5] = bytes(4)
    message.content["sync"]["head"] = raw(bytes(head))
    second = decoded(network, network.answer(message, np.zeros(SIZE, np.float32)))
    np.testing.assert_allclose(first + second + network.residual(0), change + first, atol=1e-6)


def algorithm_2(model, changes, p_up, p_down):
    """Sattler et al., Algorithm 2 with all clients, per tensor, written with dense arrays."""

    def stc(vector, p):
        sent = np.zeros_like(vector)
        for start, stop in ((0, 117), (117, 130), (130, 131)):
            part = vector[start:stop]
            k = max(int(np.ceil(len(part) * p)), 1)
            kept = np.argsort(-np.abs(part), kind="stable")[:k]
            sent[start:stop][kept] = np.sign(part[kept]) * np.abs(part[kept]).mean()
        return sent

    residuals, server = [np.zeros(SIZE) for _ in changes[0]], np.zeros(SIZE)
    for in_round in changes:
        sent = []
        for client, change in enumerate(in_round):
            accumulated = residuals[client] + change
            sent.append(stc(accumulated, p_up))
            residuals[client] = accumulated - sent[-1]
        total = server + np.mean(sent, axis=0)
        update = stc(total, p_down)
        server = total - update
        model = model + update
    return model


def test_stc_is_the_papers_algorithm():
    network = Network("stc", clients=3, sparsity_up=0.1, sparsity_down=0.04)
    start = flat(network.model).astype(np.float64)
    changes = [[network.draw() for _ in range(3)] for _ in range(25)]
    for in_round in changes:
        network.step(dict(enumerate(in_round)))
    expected = algorithm_2(start, changes, 0.1, 0.04)
    np.testing.assert_allclose(flat(network.model), expected, atol=1e-4)


@pytest.mark.parametrize(("weights", "expected"), [("uniform", 2.0), ("samples", 2.5)])
@pytest.mark.parametrize("name", ["stc", "topk"])
def test_weights(name, weights, expected):
    network = Network(name, sparsity_up=1.0, sparsity_down=1.0, scope="model", weights=weights)
    before = flat(network.model)
    ones = np.ones(SIZE, np.float32)
    network.step({0: 1 * ones, 1: 3 * ones}, {0: 10, 1: 30})
    np.testing.assert_allclose(flat(network.model) - before, expected, rtol=1e-5)


def test_topk_sends_the_largest_entries_and_the_full_model():
    network = Network("topk", clients=2, sparsity_up=0.02)
    before = flat(network.model)
    changes = [network.draw(), network.draw()]
    network.step(dict(enumerate(changes)))
    expected = np.zeros((2, SIZE))
    for row, change in zip(expected, changes, strict=True):
        for start, stop, k in ((0, 117, 3), (117, 130, 1), (130, 131, 1)):
            kept = start + np.argsort(-np.abs(change[start:stop]))[:k]
            row[kept] = change[kept]
    np.testing.assert_allclose(flat(network.model) - before, expected.mean(0), atol=1e-6)
    for message in network.send(0, 1):
        assert "arrays" in message.content
        assert "updates" not in message.content["sync"]


def test_signsgd_is_a_majority_vote_and_ties_stay():
    network = Network("signsgd", clients=4, step_size=0.5)
    before = flat(network.model)
    votes = np.zeros((4, SIZE), np.float32)
    votes[:, 0] = [1, 2, -5, 0.1]  # three to one
    votes[:, 1] = [1, 2, -5, -9]  # a tie
    votes[:, 2] = [-1e-6, 0, 0, 0]  # one against none
    votes[:, 3] = [-1, -1, 100, 0]
    network.step(dict(enumerate(votes)))
    expected = np.zeros(SIZE)
    expected[[0, 2, 3]] = [0.5, -0.5, -0.5]
    np.testing.assert_allclose(flat(network.model) - before, expected, atol=1e-6)
    assert "feedback" not in network.contexts[0].state


def test_the_full_model_goes_to_the_new_the_forgetful_and_those_long_away():
    network = Network("stc", clients=3, **ARGUMENTS["stc"])
    assert all("arrays" in message.content for message in network.send(0, 1, 2))
    network = Network("stc", clients=3, **ARGUMENTS["stc"])
    network.step({0: network.draw(), 1: network.draw()})
    chain = network.send(0)[0].content["sync"]["updates"].data
    assert len(chain) < 4 * SIZE / 5
    for _ in range(3):
        network.step({0: network.draw()})
    # Client 1 missed three more; the chain has grown with it, and is still the smaller.
    longer = network.send(1)[0].content["sync"]["updates"].data
    assert longer.startswith(chain)
    while True:  # until what client 1 lacks would be larger than the model
        network.step({0: network.draw()})
        content = network.send(1)[0].content
        if "arrays" in content:
            break
        assert len(content["sync"]["updates"].data) < 4 * SIZE
    assert sum(map(len, network.strategy._chain)) < 4 * SIZE
    network.step({1: network.draw()})
    network.forget(1)
    replies = network.step({1: network.draw()})
    assert "metrics" not in replies[0].content
    assert "gets the full one next time" in network.strategy.rejected[11]
    network.step({1: network.draw()})
    assert not network.strategy.rejected


def test_a_model_changed_by_others_is_sent_in_full():
    network = Network("stc", **ARGUMENTS["stc"])
    network.step({0: network.draw()})
    network.model = Network("stc", seed=9).model
    assert "arrays" in network.send(0)[0].content


def test_a_failed_training_leaves_the_clients_memory_alone():
    network = Network("stc", clients=1, **ARGUMENTS["stc"])
    network.step({0: network.draw()})
    before = network.contexts[0].state["feedback"]["residual"].data
    version = dict(network.contexts[0].state["synced-version"])
    (message,) = network.send(0)
    with pytest.raises(ValueError, match="NaN or infinite"):
        network.answer(message, np.full(SIZE, np.nan, np.float32))
    assert network.contexts[0].state["feedback"]["residual"].data == before
    assert dict(network.contexts[0].state["synced-version"]) == version


def test_an_update_that_the_server_would_refuse_is_not_kept():
    """It would come back to the residual, and be refused for ever."""
    network = Network("stc", clients=1, **ARGUMENTS["stc"])
    network.step({0: network.draw()})
    (message,) = network.send(0)
    with pytest.raises(ValueError, match="changes a weight by"):
        network.answer(message, np.full(SIZE, 1e22, np.float32))
    network.step({0: network.draw()})
    assert not network.strategy.rejected


def test_a_message_that_comes_late_changes_nothing():
    network = Network("stc", clients=1, **ARGUMENTS["stc"])
    (late,) = network.send(0)
    network.step({0: network.draw()})
    with pytest.raises(ValueError, match="a message of round 1, after one of round 2"):
        network.answer(late, network.draw())


def test_a_state_from_the_past_counts_nothing_twice():
    """Two messages at once: the older one's state is written last."""
    network = Network("stc", clients=1, **ARGUMENTS["stc"])
    network.step({0: network.draw()})
    past = dict(network.contexts[0].state)
    network.step({0: network.draw()})
    network.contexts[0].state = RecordDict(past)
    network.step({0: network.draw()})  # its model is an old one too: it asks for the full one
    (message,) = network.send(0)
    change = network.draw()
    sent = decoded(network, network.answer(message, change))
    np.testing.assert_allclose(sent + network.residual(0), change, atol=1e-6)


@pytest.mark.parametrize("forget", [True, False])
def test_the_acknowledgement_outlives_the_version(forget):
    network = Network("stc", clients=1, **ARGUMENTS["stc"])
    change = network.draw()
    first = decoded(network, network.step({0: change})[0])
    if forget:  # only the model; the residual is still there
        del network.contexts[0].state["synced-model"]
        (message,) = network.send(0)
        network.receive([network.answer(message, change)])
    else:  # an equal model, made by somebody else
        network.model = record(flat(network.model))
    (message,) = network.send(0)
    second = decoded(network, network.answer(message, np.zeros(SIZE, np.float32)))
    np.testing.assert_allclose(first + second + network.residual(0), change, atol=1e-6)


def test_a_handler_that_writes_into_its_message_spoils_no_other_clients_model():
    network = Network("stc", clients=2, **ARGUMENTS["stc"])
    network.step({0: network.draw(), 1: network.draw()})
    before = flat(network.model)
    messages = network.send(0, 1)

    def vandal(message, _):
        reply = Message(RecordDict(dict(message.content)), reply_to=message)
        message.content["arrays"]["weight"] = Array(np.zeros((9, 13), np.float32))
        return reply

    network.mod(messages[0], network.contexts[0], vandal)
    network.answer(messages[1], network.draw())
    assert np.array_equal(network.trained_from[1], before)


def test_training_that_returns_another_shape_is_named():
    network = Network("stc", clients=1, **ARGUMENTS["stc"])
    (message,) = network.send(0)

    def transposed(message, _):
        arrays = {name: Array(a.numpy().T.copy()) for name, a in message.content["arrays"].items()}
        return Message(RecordDict({"arrays": ArrayRecord(arrays)}), reply_to=message)

    with pytest.raises(ValueError, match="other names or shapes"):
        network.mod(message, network.contexts[0], transposed)


def raw(data, stype="fedavg_app.bytes"):
    return Array("uint8", (len(data),), stype, data)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda reply: reply.content.pop("update"), "no array 'payload'"),
        (lambda reply: reply.content.pop("metrics"), "no MetricRecord"),
        (lambda reply: reply.content["update"].pop("payload"), "no array 'payload'"),
        (lambda reply: replace(reply, b""), "its head alone takes 6"),
        (lambda reply: replace(reply, b"\x02" + bytes(20)), "protocol 2"),
        (lambda reply: replace(reply, b"\x01\x07" + bytes(20)), "unknown status 7"),
        (lambda reply: replace(reply, encode_reply(0, 99, b"")), "trained from version 99"),
        (lambda reply: replace(reply, encode_reply(0, 0, bytes(9))), "undecodable update"),
        (lambda reply: replace(reply, payload(reply), "numpy.ndarray"), "no array 'payload'"),
        (lambda reply: replace(reply, payload(reply)[:-1]), "undecodable update"),
        (lambda reply: replace(reply, payload(reply) + b"\0"), "undecodable update"),
        (lambda reply: replace(reply, huge(reply)), "changes a weight by"),
        (lambda reply: replace(reply, whole()), "k = 131 do not fit"),
    ],
)
def test_bad_replies_are_refused_and_the_rest_counts(spoil, reason):
    network, honest = (Network("stc", clients=2, **ARGUMENTS["stc"]) for _ in range(2))
    changes = [network.draw(), network.draw()]
    messages = network.send(0, 1)
    replies = [network.answer(m, change) for m, change in zip(messages, changes, strict=True)]
    spoil(replies[0])
    network.receive(replies)
    assert reason in network.strategy.rejected[10]
    honest.step({1: changes[1]})
    assert np.array_equal(flat(network.model), flat(honest.model))


def test_the_updates_of_a_round_with_too_few_come_back():
    """The server must not say that it took them: two rounds' changes arrive with the third."""
    network, twin = (Network("stc", clients=2, **ARGUMENTS["stc"]) for _ in range(2))
    network.strategy.limits = Limits(min_replies=2)
    changes = [{client: network.draw() for client in range(2)} for _ in range(3)]
    for one in (network, twin):
        one.step(changes[0])
    model, version = network.model, network.strategy._version
    residual = network.strategy.residual.copy()
    kept = network.residual(0).copy()

    (alone,) = network.step({0: changes[1][0]})
    assert network.strategy.rejected == {10: "too few usable replies: 1, min-replies is 2"}
    assert network.model is model
    assert network.strategy._version == version
    assert np.array_equal(network.strategy.residual, residual)
    assert network.strategy.theory_bits_up == 0
    in_vain = decoded(network, alone)
    assert in_vain.any()
    np.testing.assert_allclose(in_vain + network.residual(0), kept + changes[1][0], atol=1e-6)

    network.step(changes[2])
    assert network.strategy.rejected == {}
    # The twin had no such round: client 0's two changes are one there.
    twin.step({0: changes[1][0] + changes[2][0], 1: changes[2][1]})
    np.testing.assert_allclose(flat(network.model), flat(twin.model), atol=1e-6)
    np.testing.assert_allclose(network.residual(0), twin.residual(0), atol=1e-6)


def test_the_limits_hold_for_decoded_updates():
    """Four entries of a ternary update of magnitude 2.25 have the norm 4.5."""
    network = Network("stc", clients=2, sparsity_up=0.03, sparsity_down=1.0, scope="model")
    long, short = np.zeros(SIZE, np.float32), np.zeros(SIZE, np.float32)
    long[:5] = [1, -2, 3, -2, 2]  # the largest four: 0.03 * 131, rounded up
    short[7:11] = [1, -1, 1, -1]
    network.strategy.limits = Limits(max_update_norm=4.4)
    before = flat(network.model)
    network.step({0: long, 1: short})
    assert network.strategy.rejected == {10: "the update's norm is 4.5, max-update-norm is 4.4"}
    np.testing.assert_allclose(flat(network.model) - before, short, atol=1e-6)
    network.strategy.limits = Limits(max_update_norm=4.6, max_examples=10)
    network.step({0: np.zeros(SIZE, np.float32), 1: short}, {0: 10, 1: 11})
    assert network.strategy.rejected == {11: "num-examples is 11, max-examples is 10"}


def payload(reply):
    return reply.content["update"]["payload"].data


def replace(reply, data, stype="fedavg_app.bytes"):
    reply.content["update"] = ArrayRecord({"payload": raw(data, stype)})


def whole():
    """An update of all entries, where a share of 0.05 was asked for."""
    blocks = (117, 13, 1)
    update = ternarise(np.arange(1, SIZE + 1, dtype=np.float32), 1.0, blocks)
    return encode_reply(0, 0, update.encode())


def huge(reply):
    data = bytearray(payload(reply))
    data[11:15] = np.float32(1e30).tobytes()
    return bytes(data)


def test_evaluation_passes_through():
    network = Network("stc")
    grid = cohort(10)
    (message,) = network.strategy.configure_evaluate(1, network.model, ConfigRecord(), grid)
    reply = network.mod(
        message, network.contexts[0], lambda m, c: Message(RecordDict(m.content), reply_to=m)
    )
    assert np.array_equal(flat(reply.content["arrays"]), flat(network.model))
    assert not network.contexts[0].state


def test_theory_counts_every_update_a_client_lacks():
    network = Network("stc", clients=2, sparsity_up=0.25, sparsity_down=0.25)
    full, one = 32 * SIZE, SIZE * 0.25 * (1 + 1 + 1 / (1 - 0.75**2))  # b* = 1 at p = 0.25
    network.step({0: network.draw(), 1: network.draw()})
    assert network.strategy.theory_bits_down == 2 * full
    assert network.strategy.theory_bits_up == pytest.approx(2 * one)
    for expected in (1, 1, 1):
        network.step({0: network.draw()})
        assert network.strategy.theory_bits_down == pytest.approx(expected * one)
    network.step({0: network.draw(), 1: network.draw()})
    assert network.strategy.theory_bits_down == pytest.approx((1 + 4) * one)
    for _ in range(60):
        network.step({0: network.draw()})
    network.send(1)
    assert network.strategy.theory_bits_down == full


@pytest.mark.parametrize(
    ("name", "arguments", "reason"),
    [
        ("stc", {"sparsity_up": 0}, "sparsity-up = 0: give a share above 0"),
        ("stc", {"sparsity_down": 1.5}, "sparsity-down = 1.5"),
        ("topk", {"sparsity_up": "a"}, "sparsity-up = a"),
        ("stc", {"scope": "layer"}, "scope = 'layer': give 'tensor' or 'model'"),
        ("topk", {"weights": "none"}, "weights = 'none'"),
        ("signsgd", {"step_size": -1.0}, "step-size = -1.0"),
        ("signsgd", {"step_size": 1e-60}, "step-size = 1e-60"),
        ("signsgd", {"step_size": "x"}, "step-size = x"),
        ("stc", {"p": 0.1}, "it takes: sparsity_up"),
    ],
)
def test_bad_arguments_are_named(name, arguments, reason):
    with pytest.raises(ValueError, match=reason):
        strategies.build(name, arguments)


@pytest.mark.parametrize("name", ALL)
def test_models_of_other_dtypes_are_refused_by_name(name):
    strategy = strategies.build(name, {})
    model = ArrayRecord({"steps": Array(np.zeros(3, np.int64))})
    with pytest.raises(ValueError, match="'steps' is int64"):
        strategy.configure_train(1, model, ConfigRecord(), cohort(10))


def test_the_shapes_of_this_test_hold_a_scalar():
    assert sum(int(np.prod(shape)) for shape in SHAPES.values()) == SIZE
