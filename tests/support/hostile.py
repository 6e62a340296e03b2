"""What hostile devices send: installed in their SuperNodes' processes, another attack each round.

A SuperNode handles each message in a process of its own. One that has this module and a
`sitecustomize.py` that calls `install` on its path trains as the app does, and forges the reply.
"""

import struct
from pathlib import Path

import numpy as np
from flwr.app import Array
from flwr.clientapp import ClientApp

from fedavg_app.packed_content import pack, unpack

FIRST_PAYLOAD = Path(__file__).parent / "first-payload"
WEIGHT = "1.weight"
# Protocol, status, codec and round: see docs/protocol.md.
REPLY_HEAD = struct.Struct("<BBII")


def replace(reply, name, array):
    """Replace an array of the reply by one of NumPy or of Flower."""
    reply.content["arrays"][name] = array if isinstance(array, Array) else Array(array)


def weight(reply):
    return reply.content["arrays"][WEIGHT].numpy()


def oversized(reply):
    replace(reply, WEIGHT, np.concatenate([weight(reply)] * 2))


def other_dtype(reply):
    replace(reply, WEIGHT, weight(reply).astype(np.float64))


def not_a_number(reply):
    forged = weight(reply)
    forged[3, 4] = np.nan
    replace(reply, WEIGHT, forged)


def infinite(reply):
    forged = weight(reply)
    forged[0, 0] = -np.inf
    replace(reply, WEIGHT, forged)


def terabytes(reply):
    """Send a NumPy header that claims four terabytes, before four bytes."""
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (10, 100000000000), }\n"
    data = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(4)
    replace(reply, WEIGHT, Array("float32", (10, 784), "numpy.ndarray", data))


def garbage(reply):
    replace(reply, WEIGHT, Array("float32", (10, 784), "numpy.ndarray", b"garbage" * 1000))


def many_examples(reply):
    reply.content["metrics"]["num-examples"] = 10**12


def failure(reply):
    del reply
    raise RuntimeError("no\nround 9: everything is fine")


def payload(reply):
    return reply.content["update"]["payload"]


def replace_payload(reply, data):
    reply.content["update"]["payload"] = data


def forged_round(reply):
    *others, _ = REPLY_HEAD.unpack_from(payload(reply))
    head = REPLY_HEAD.pack(*others, 999)
    replace_payload(reply, head + payload(reply)[REPLY_HEAD.size :])


def replayed(reply):
    replace_payload(reply, FIRST_PAYLOAD.read_bytes())


def too_many_entries(reply):
    """Send an update that claims 2^32 - 1 entries, in the four bytes after its first."""
    data, count = payload(reply), REPLY_HEAD.size + 1
    replace_payload(reply, data[:count] + b"\xff" * 4 + data[count + 4 :])


def noise(reply):
    head = payload(reply)[: REPLY_HEAD.size]
    replace_payload(reply, head + np.random.default_rng(1).bytes(4000))


def text_as_payload(reply):
    replace_payload(reply, "an update")


def no_metrics(reply):
    del reply.content["metrics"]


# The attacks of clients 1 and 2 in round 1, in round 2, and so on, and a part of the reason with
# which each is rejected.
NOT_FINITE = "array '1.weight' has NaN or infinite values"
ON_MODELS = [
    (oversized, "array '1.weight' is float32[20, 784], expected float32[10, 784]"),
    (other_dtype, "array '1.weight' is float64[10, 784], expected float32[10, 784]"),
    (not_a_number, NOT_FINITE),
    (terabytes, "array '1.weight' is float32[10, 100000000000], expected float32[10, 784]"),
    (garbage, "array '1.weight' has an unreadable header"),
    (many_examples, "num-examples is 1000000000000, max-examples is 1000000000"),
    (failure, "everything is fine"),
    (infinite, NOT_FINITE),
]
ON_UPDATES = [
    (forged_round, "the reply is to round 999, not 1"),
    (noise, "undecodable update: "),
    (replayed, "the reply is to round 1, not 2"),
    (too_many_entries, "k = 4294967295, the sparsity allows "),
    (text_as_payload, "no bytes 'payload' in the ConfigRecord 'update'"),
    (no_metrics, "no MetricRecord 'metrics'"),
]


def install():
    """Make every `ClientApp` of this process forge its replies to training messages."""
    honest = ClientApp.__call__

    def hostile(self, message, context):
        reply = honest(self, message, context)
        if message.metadata.message_type.startswith("train"):
            client = context.node_config["partition-id"]
            number = 2 * (message.content["config"]["server-round"] - 1) + client % 2
            unpack(reply)
            compressed = "update" in reply.content
            if compressed and number == 0:
                FIRST_PAYLOAD.write_bytes(payload(reply))
            attack, _ = (ON_UPDATES if compressed else ON_MODELS)[number]
            attack(reply)
            reply.content = pack(reply.content)
        return reply

    ClientApp.__call__ = hostile
