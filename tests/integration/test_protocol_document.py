"""A client written from docs/protocol.md alone follows a real run and agrees with ours.

Nothing here imports `strategies.compression`: the numbers and names are those of the document, and
the bytes are read one bit at a time by `tests.support.compression_reference`.
"""

import json
import struct
import zlib

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict

import strategies
from fedavg_app.flower_internals import identify_server
from fedavg_app.server.cohort import CohortGrid
from tests.support.compression_reference import decode_sign, decode_sparse, decode_ternary

SHAPES = {"layer.weight": (7, 11), "layer.bias": (7,)}
SIZE = 84
BLOCKS = {"tensor": [77, 7], "model": [84]}
ROUNDS = 12


def with_scope(decode):
    """Return a function that decodes bytes to a vector, given how tensors are grouped."""
    return lambda data, scope: np.array(decode(data, BLOCKS.get(scope, [SIZE])), np.float32)


FORMS = {
    "stc": with_scope(decode_ternary), "topk": with_scope(decode_sparse),
    "signsgd": with_scope(decode_sign),
}  # fmt: skip
# What the digest is of, for a share of 0.1 up and 0.05 down.
CODECS = {
    "stc": {"name": "ternary", "scope": "SCOPE"},
    "topk": {"name": "sparse", "scope": "SCOPE"},
    "signsgd": {"name": "sign"},
}


def codec_of(name, scope):
    """Return the digest of a strategy's codec, from the document's text."""
    one, signs = CODECS[name], name == "signsgd"
    table = {
        "downlink": {**one, **({"step": 0.0002} if signs else {"sparsity": 0.05})},
        "feedback": {"name": "none" if signs else "residual"},
        "uplink": {**one, **({"step": 1.0} if signs else {"sparsity": 0.1})},
        "warmup-rounds": 0,
    }
    text = json.dumps(table, separators=(",", ":"), sort_keys=True).replace("SCOPE", scope)
    return zlib.crc32(text.encode())


def vector_of(record):
    return np.concatenate([record[name].numpy().reshape(-1) for name in SHAPES])


class DocumentedClient:
    """Keeps a model, a version and nothing else; reads messages as the document says."""

    def __init__(self, form, codec, scope):
        self.form, self.codec, self.scope = form, codec, scope
        self.model, self.version = None, None

    def read(self, content):
        own = content["fedavg-strategies"]
        head = struct.unpack("<BIIBII", own["head"])
        protocol, codec, settled, refused, number, fingerprint = head
        assert (protocol, codec, refused) == (7, self.codec, 0)
        if "arrays" in content:
            assert set(content) == {"config", "arrays", "fedavg-strategies"}
            assert "updates" not in own
            self.model = vector_of(content["arrays"])
            self.version = (number, zlib.crc32(self.model.tobytes()))
            assert self.version == (number, fingerprint)
            return settled
        assert set(content) == {"config", "fedavg-strategies"}
        data = own["updates"]
        place = 0
        while place < len(data):
            leads_to, length = struct.unpack_from("<II", data, place)
            update = data[place + 8 : place + 8 + length]
            place += 8 + length
            if leads_to > self.version[0]:
                self.model = self.model + self.form(update, self.scope)
                self.version = (leads_to, zlib.crc32(self.model.tobytes()))
        assert self.version == (number, fingerprint)
        return settled


def training(change):
    """Return a ClientApp handler whose training adds ``change`` to the model's vector."""

    def handler(message, _):
        arrays = message.content["arrays"]
        parts = np.split(change, [77])
        trained = {
            name: Array(arrays[name].numpy() + part.reshape(SHAPES[name]))
            for name, part in zip(SHAPES, parts, strict=True)
        }
        content = {"arrays": ArrayRecord(trained), "metrics": MetricRecord({"num-examples": 5})}
        return Message(RecordDict(content), reply_to=message)

    return handler


@pytest.mark.parametrize("scope", ["tensor", "model"])
@pytest.mark.parametrize("name", ["stc", "topk", "signsgd"])
def test_client_written_from_the_document_decodes_a_run(name, scope):
    identify_server(1)
    rng = np.random.default_rng(5)
    arguments = {} if name == "signsgd" else {"scope": scope}
    if name != "signsgd":
        arguments |= {"sparsity_up": 0.1, "sparsity_down": 0.05}
    strategy = strategies.build(name, arguments)
    mod = strategies.client_mod(name, arguments)
    model = ArrayRecord(
        {key: Array(rng.normal(size=shape).astype(np.float32)) for key, shape in SHAPES.items()}
    )
    contexts = [Context(1, node, {}, RecordDict(), {}) for node in (10, 11, 12)]
    codec = codec_of(name, scope)
    readers = [DocumentedClient(FORMS[name], codec, scope) for _ in contexts]
    settled_in = [0, 0, 0]
    chains = 0
    for server_round in range(1, ROUNDS + 1):
        taking_part = [0, 1] if server_round % 3 else [1, 2]
        grid = CohortGrid(None, [contexts[i].node_id for i in taking_part])
        sent = strategy.configure_train(server_round, model, ConfigRecord(), grid)
        before = vector_of(model)
        updates, replies = [], []
        for i, message in zip(taking_part, sent, strict=True):
            chains += "updates" in message.content["fedavg-strategies"]
            assert readers[i].read(message.content) == settled_in[i]
            np.testing.assert_array_equal(readers[i].model, before)  # to the last bit
            change = rng.normal(size=SIZE).astype(np.float32)
            change[rng.integers(SIZE, size=9)] = 0
            reply = mod(message, contexts[i], training(change))
            assert set(reply.content) == {"fedavg-strategies", "metrics"}
            assert reply.content["metrics"] == MetricRecord({"num-examples": 5})
            record = reply.content["fedavg-strategies"]
            assert (type(record), set(record)) == (ArrayRecord, {"payload"})
            array = record["payload"]
            payload = array.data
            expected = ("uint8", (len(payload),), "fedavg_strategies.update")
            assert (array.dtype, tuple(array.shape), array.stype) == expected
            assert struct.unpack_from("<BBII", payload) == (7, 0, codec, server_round)
            updates.append(FORMS[name](payload[10:], scope))
            replies.append(reply)
            settled_in[i] = server_round
        model = strategy.finish_round(replies).model
        if name == "signsgd":
            expected = before + np.float32(0.0002) * np.sign(updates[0] + updates[1])
            np.testing.assert_array_equal(vector_of(model), expected)
    assert chains > ROUNDS / 2
