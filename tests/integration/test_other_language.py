"""A client in JavaScript, written from docs/protocol.md alone, agrees with ours to the last bit."""

import base64
import pickle

import numpy as np
import pytest
from flwr.app import Message, RecordDict

from strategies.rounds.reply_errors import ReplyError
from strategies.rounds.reply_validation import Reply
from strategies.rounds.values import ReplyBounds
from tests.support.compressed_network import (
    BLOCKS,
    REPLY_HEAD_BYTES,
    SIZE,
    Network,
    flatten,
    model_record,
    payload,
    payload_record,
)
from tests.support.javascript import as_text, as_vector, needs_node, node, value, vector_text

pytestmark = [
    pytest.mark.slow,
    needs_node,
    pytest.mark.usefixtures("server_identity"),
]

SIZES = {"tensor": BLOCKS, "model": (SIZE,)}
UP, DOWN = 0.1, 0.05


def told(message):
    """Return what a training message says to a client, for the script."""
    own = message.content["fedavg-strategies"]
    number = message.content["config"]["server-round"]
    found = {"round": number, "head": as_text(own["head"])}
    if "arrays" in message.content:
        found["model"] = vector_text(flatten(message.content["arrays"]))
    if "updates" in own:
        found["updates"] = as_text(own["updates"])
    return found


def random_change(rng):
    """Return a change with ties and zeros, and at times nothing but zeros in two blocks."""
    change = rng.normal(size=SIZE).astype(np.float32)
    change[rng.integers(SIZE, size=40)] = rng.choice([0.0, -1.5, 1.5], size=40)
    if rng.random() < 0.3:
        change[BLOCKS[0] :] = 0
    return change


@pytest.mark.parametrize("scope", SIZES)
def test_client_follows_a_run_of_stc(scope):
    """Four clients, of which two take part; replies are lost, one loses its state, one diverges."""
    rng = np.random.default_rng(3)
    network = Network("stc", scope=scope, sparsity_up=UP, sparsity_down=DOWN)
    vector = flatten(network.model)
    vector[:5] = -0.0
    network.model = model_record(vector)
    messages, models, payloads = [], [], []
    for server_round in range(1, 31):
        chosen = sorted(rng.choice(4, size=2, replace=False).tolist())
        restarted = server_round in (12, 20)
        if restarted:
            network.contexts[chosen[0]] = network.new_context(chosen[0])
        replies = []
        for client, message in zip(chosen, network.configure(*chosen), strict=True):
            said = {**told(message), "client": client, "restarted": restarted}
            network.trained_from.pop(client, None)
            change = random_change(rng)
            if server_round in (17, 25):
                change[3] = np.nan if server_round == 17 else 2.0**70  # the latter is averaged
            if server_round == 23:
                change[:] = 2.0**63
            reply = network.train(message, change)
            model = network.trained_from.get(client)
            if model is not None:
                said["trained"] = vector_text(model + change)
            messages.append(said)
            models.append(model)
            payloads.append(payload(reply))
            replies.append(reply)
            restarted = False
        network.aggregate(replies[: rng.integers(3)])  # the others are lost
    codec = str(network.strategy.codec)
    (answer,) = node(("clients", {"codec": codec, "sizes": BLOCKS, "messages": messages}))
    for found, model, data in zip(value(answer), models, payloads, strict=True):
        assert base64.b64decode(found["payload"]) == data
        assert (found["model"] is None) == (model is None)
        assert model is None or as_vector(found["model"]).tobytes() == model.tobytes()
    statuses = [data[1] for data in payloads]
    assert {0, 1, 2} == set(statuses)
    assert sum("updates" in message for message in messages) > 20


def spoilt(rng, data):
    """Yield a payload as it is, and with faults."""
    yield data
    yield data + b"\0"
    for length in range(REPLY_HEAD_BYTES, len(data)):
        yield data[:length]
    for _ in range(400):
        changed = bytearray(data)
        place = rng.integers(1, len(data))
        changed[place] ^= 1 << rng.integers(8)
        yield bytes(changed)
    for special in (np.nan, np.inf, -0.0, 0.0, -1.0, 2.0**64, 2.0**65):
        for place in range(REPLY_HEAD_BYTES, min(len(data) - 3, REPLY_HEAD_BYTES + 24)):
            yield data[:place] + np.float32(special).tobytes() + data[place + 4 :]


def read_by_us(network, message, data):
    """Return what our server reads in a reply to the first round, None if it uses none of it."""
    content = RecordDict({"fedavg-strategies": payload_record(data)})
    now = network.runner.now
    try:
        reply = Reply(Message(content, reply_to=message), now.model, ReplyBounds())
        (update,) = network.strategy.read(now, reply)
    except ReplyError:
        return None
    return update.to_dense()


@pytest.mark.parametrize(
    ("name", "arguments", "form"),
    [
        ("stc", {"sparsity_up": UP}, {"p": UP}),
        ("stc", {"sparsity_up": 0.4, "scope": "model"}, {"p": 0.4}),
        ("qsgd", {"bits": 2}, {"bits": 2, "bucket": 512}),
        ("qsgd", {"bits": 4, "bucket": 64}, {"bits": 4, "bucket": 64}),
    ],
)
def test_both_reject_the_same_replies(name, arguments, form):
    network = Network(name, clients=1, **arguments)
    (message,) = network.configure(0)
    data = payload(network.train(message, network.random_change()))
    payloads = [*spoilt(np.random.default_rng(1), data)]
    common = {
        "codec": str(network.strategy.codec), "round": 1,
        "form": {"sizes": SIZES[arguments.get("scope", "tensor")], **form},
    }  # fmt: skip
    answers = node(*(("readReply", {**common, "payload": as_text(sent)}) for sent in payloads))
    accepted, state = 0, pickle.dumps(network.strategy)
    for sent, answer in zip(payloads, answers, strict=True):
        update = answer.get("value", {}).get("update")
        expected = read_by_us(network, message, sent)
        assert (update is None) == (expected is None), (sent.hex(), answer)
        if update is not None:
            accepted += 1
            np.testing.assert_array_equal(as_vector(update), expected)  # -0 is 0
    assert 1 <= accepted < len(payloads)
    assert pickle.dumps(network.strategy) == state
