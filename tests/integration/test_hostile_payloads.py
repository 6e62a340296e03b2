"""Damaged and forged payloads through the server's `read`.

tests/unit/strategies/compression/test_hostile_bytes.py and the compressors' contract do the same
with the decoders alone, and test_compressed_client.py has invalid messages to clients.
"""

import pickle

import numpy as np
import pytest
from flwr.app import RecordDict

from strategies.compression.testing import mutants
from strategies.rounds.reply_errors import ReplyError
from strategies.rounds.reply_validation import Reply
from strategies.rounds.values import ReplyBounds
from tests.support.compressed_network import (
    Network,
    payload,
    payload_record,
)
from tests.support.replies import reply_with

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("server_identity")]

SERVER_REPLIES = 4_000  # per strategy

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
