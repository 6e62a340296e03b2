"""A client written from docs/protocol.md alone follows a real run and agrees with ours.

Nothing here imports `strategies.compression`: the numbers and names are those of the document, and
the bytes are read one bit at a time by `tests.support.compression_reference`.
"""

import json
import struct
import zlib

import numpy as np
import pytest
from flwr.app import ArrayRecord, MetricRecord

from tests.support.compressed_network import BLOCKS, SIZE, Network, flatten
from tests.support.compression_reference import decode_sign, decode_sparse, decode_ternary

pytestmark = pytest.mark.usefixtures("server_identity")

SPARSE = {"sparsity_up": 0.1, "sparsity_down": 0.05}
# By strategy: the compressor's name in the document, how its bytes are read, and the arguments.
FORMS = {
    "stc": ("ternary", decode_ternary, SPARSE),
    "topk": ("sparse", decode_sparse, SPARSE),
    "signsgd": ("sign", decode_sign, {}),
}
ROUNDS = 12


def digest_of(name, scope):
    """Return the digest of a strategy's codec, from the document's text."""
    form, signs = FORMS[name][0], name == "signsgd"
    one = {"name": form} if signs else {"name": form, "scope": scope}
    table = {
        "downlink": {**one, **({"step": 0.0002} if signs else {"sparsity": 0.05})},
        "feedback": {"name": "none" if signs else "residual"},
        "uplink": {**one, **({"step": 1.0} if signs else {"sparsity": 0.1})},
        "warmup-rounds": 0,
    }
    return zlib.crc32(json.dumps(table, separators=(",", ":"), sort_keys=True).encode())


class DocumentedClient:
    """Keeps a model, a version and nothing else; reads messages as the document says."""

    def __init__(self, decode, codec):
        self.decode, self.codec = decode, codec
        self.model, self.version = None, None

    def read(self, content):
        own = content["fedavg-strategies"]
        head = struct.unpack("<BIIBII", own["head"])
        protocol, codec, settled, refused, number, fingerprint = head
        assert (protocol, codec, refused) == (7, self.codec, 0)
        if "arrays" in content:
            assert set(content) == {"config", "arrays", "fedavg-strategies"}
            assert "updates" not in own
            self.model = flatten(content["arrays"])
            self.version = (number, zlib.crc32(self.model.tobytes()))
        else:
            assert set(content) == {"config", "fedavg-strategies"}
            self.follow(own["updates"])
        assert self.version == (number, fingerprint)
        return settled

    def follow(self, data):
        place = 0
        while place < len(data):
            leads_to, length = struct.unpack_from("<II", data, place)
            update = data[place + 8 : place + 8 + length]
            place += 8 + length
            if leads_to > self.version[0]:
                self.model = self.model + self.decode(update)
                self.version = (leads_to, zlib.crc32(self.model.tobytes()))


@pytest.mark.parametrize("scope", ["tensor", "model"])
@pytest.mark.parametrize("name", FORMS)
def test_client_written_from_the_document_decodes_a_run(name, scope):
    _, bits, arguments = FORMS[name]
    if name != "signsgd":
        arguments = {**arguments, "scope": scope}
    blocks = (SIZE,) if scope == "model" else BLOCKS

    def decode(data):
        return np.array(bits(data, blocks), np.float32)

    network, codec = Network(name, clients=3, **arguments), digest_of(name, scope)
    readers = [DocumentedClient(decode, codec) for _ in range(3)]
    settled_in = [0, 0, 0]
    chains = 0
    for server_round in range(1, ROUNDS + 1):
        taking_part = (0, 1) if server_round % 3 else (1, 2)
        before, updates, replies = flatten(network.model), [], []
        for i, message in zip(taking_part, network.configure(*taking_part), strict=True):
            chains += "updates" in message.content["fedavg-strategies"]
            assert readers[i].read(message.content) == settled_in[i]
            np.testing.assert_array_equal(readers[i].model, before)  # to the last bit
            change = network.random_change()
            change[network.rng.integers(SIZE, size=9)] = 0
            reply = network.train(message, change, num_examples=5)
            assert set(reply.content) == {"fedavg-strategies", "metrics"}
            metrics = MetricRecord({"num-examples": 5, "train-loss": 1.0})
            assert reply.content["metrics"] == metrics
            record = reply.content["fedavg-strategies"]
            assert (type(record), set(record)) == (ArrayRecord, {"payload"})
            array = record["payload"]
            expected = ("uint8", (len(array.data),), "fedavg_strategies.update")
            assert (array.dtype, tuple(array.shape), array.stype) == expected
            assert struct.unpack_from("<BBII", array.data) == (7, 0, codec, server_round)
            updates.append(decode(array.data[10:]))
            replies.append(reply)
            settled_in[i] = server_round
        network.aggregate(replies)
        if name == "signsgd":
            expected = before + np.float32(0.0002) * np.sign(updates[0] + updates[1])
            np.testing.assert_array_equal(flatten(network.model), expected)
    assert chains > ROUNDS / 2
