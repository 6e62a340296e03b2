"""Damaged and forged payloads through the real ends: the server's `read` and the client's mod.

tests/unit/strategies/compression/test_hostile_bytes.py and the compressors' contract do the same
with the decoders alone.
"""

import copy
import pickle

import numpy as np
import pytest
from flwr.app import ConfigRecord, RecordDict

from strategies.compression.decoded_update import DecodeError
from strategies.compression.sync_protocol import (
    Head,
    Payload,
    ReplyStatus,
    Version,
    decode_updates,
    encode_update,
)
from strategies.compression.testing import check_update, mutants
from strategies.rounds.client_report import ReplyBounds
from strategies.rounds.reply_errors import ReplyError
from strategies.rounds.reply_validation import Reply
from tests.support.compressed_network import (
    SIZE,
    Network,
    flatten,
    payload,
    payload_record,
    state_bytes,
)
from tests.support.replies import reply_with

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("server_identity")]

SERVER_REPLIES = 4_000  # per strategy
CLIENT_MESSAGES = 2_000

STRATEGIES = {
    "stc": {"sparsity_up": 0.1, "sparsity_down": 0.1},
    "topk": {"sparsity_up": 0.1, "sparsity_down": 0.1},
    "signsgd": {},
}


def network_after_rounds(name, rounds=3):
    """Return a network whose clients have trained for some rounds."""
    network = Network(name, clients=3, **STRATEGIES[name])
    for _ in range(rounds):
        network.run_round({client: network.random_change() for client in range(3)})
    return network


@pytest.mark.parametrize("name", STRATEGIES)
def test_server_accepts_or_rejects_every_reply_and_keeps_its_state(name):
    network = network_after_rounds(name)
    messages = network.configure(0, 1)
    valid = [network.train(message, network.random_change()) for message in messages]
    before, now = pickle.dumps(network.strategy), network.runner.now
    accepted = 0
    for data in mutants([payload(reply) for reply in valid], SERVER_REPLIES):
        content = RecordDict({"fedavg-strategies": payload_record(data)})
        try:
            network.strategy.read(now, Reply(reply_with(12, content), now.model, ReplyBounds()))
        except ReplyError:
            continue
        except Exception as error:
            pytest.fail(f"{error!r} from {data.hex()}")
        accepted += 1
    assert 0 < accepted < SERVER_REPLIES
    assert pickle.dumps(network.strategy) == before

    # The round continues.
    bad = reply_with(12, RecordDict({"fedavg-strategies": payload_record(b"\xff" * 40)}))
    network.aggregate([valid[0], bad, valid[1]])
    assert list(network.outcome.rejected) == [12]
    assert all(np.isfinite(array.numpy()).all() for array in network.model.values())
    network.run_round({0: network.random_change()})
    assert not network.outcome.rejected


@pytest.mark.parametrize("name", STRATEGIES)
def test_client_answers_or_raises_and_keeps_its_state_unless_it_trained(name):
    network = network_after_rounds(name)
    for _ in range(3):  # without client 0
        network.run_round({client: network.random_change() for client in (1, 2)})
    change = network.random_change()
    context, own = network.contexts[0], network.configure(0)[0].content["fedavg-strategies"]
    head, updates = own["head"], own["updates"]
    assert len(decode_updates(updates)) == 4  # these three, and that of its last round
    before = state_bytes(context)
    outcomes = {"trained": 0, "needs the model": 0, "diverged": 0, "raised": 0}
    first = decode_updates(updates)[0]
    lists = [updates, encode_update(*first), b""]
    heads, forged = mutants([head], CLIENT_MESSAGES), mutants(lists, CLIENT_MESSAGES, seed=4)
    for turn, (new_head, new_updates) in enumerate(zip(heads, forged, strict=True)):
        if turn % 4 == 0:
            new_updates = updates
        elif turn % 4 > 1:  # a fingerprint that fits, so that the updates themselves are read
            new_head = fitting_head(network, context, new_updates) or new_head
        message = network.configure(0)[0]
        entries = {**own, "head": new_head, "updates": new_updates}
        message.content["fedavg-strategies"] = ConfigRecord(entries)
        network.contexts[0] = copy.deepcopy(context)
        try:
            with np.errstate(all="ignore"):  # an update may make the sum overflow; it is noticed
                # At times training itself diverges, after the message has been read.
                reply = network.train(message, change if turn % 5 else change * np.nan)
        except ValueError:  # a DecodeError is one
            outcomes["raised"] += 1
            assert state_bytes(network.contexts[0]) == before
            continue
        except Exception as error:
            pytest.fail(f"{error!r} from head {new_head.hex()}, updates {new_updates.hex()}")
        answer = Payload.decode(payload(reply))
        status = answer.status
        assert answer.server_round == network.round
        if status != ReplyStatus.UPDATE:
            needs_model = status == ReplyStatus.NEEDS_MODEL
            outcomes["needs the model" if needs_model else "diverged"] += 1
            assert state_bytes(network.contexts[0]) == before
            continue
        outcomes["trained"] += 1
        check_update(network.strategy.codec.uplink.decode(answer.update, network.layout), SIZE)
        model = network.contexts[0].state["strategy-model"]
        assert all(np.isfinite(array.numpy()).all() for array in model.values())
    assert min(outcomes.values()) > CLIENT_MESSAGES // 100, outcomes


def fitting_head(network, context, updates):
    """Return the head of a server that would have sent these updates; None where none would."""
    codec = network.strategy.codec
    number = context.state["strategy-memory"]["number"]
    vector = flatten(context.state["strategy-model"])
    try:
        for later, data in decode_updates(updates):
            if later > number:
                number = later
                with np.errstate(all="ignore"):
                    vector += codec.downlink.decode(data, network.layout).to_dense()
    except DecodeError:
        return None
    return Head(codec.digest, 0, False, Version.of(number, vector)).encode()
