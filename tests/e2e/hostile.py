"""What hostile devices send: installed in their SuperNodes' processes, new attacks every round.

A SuperNode handles every message in a process of its own. One that finds this module and a
`sitecustomize.py` that calls `install` on its path, trains as the app does, and spoils the reply.
"""

from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord
from flwr.clientapp import ClientApp

KEPT = Path(__file__).parent / "kept"
WEIGHT = "1.weight"


def replace(reply, name, array):
    """Put an array, of NumPy or of Flower, in the place of one that the reply holds."""
    reply.content["arrays"][name] = array if isinstance(array, Array) else Array(array)


def weight(reply):
    return reply.content["arrays"][WEIGHT].numpy()


def oversized(reply):
    replace(reply, WEIGHT, np.concatenate([weight(reply)] * 2))


def other_dtype(reply):
    replace(reply, WEIGHT, weight(reply).astype(np.float64))


def not_a_number(reply):
    spoiled = weight(reply)
    spoiled[3, 4] = np.nan
    replace(reply, WEIGHT, spoiled)


def infinite(reply):
    spoiled = weight(reply)
    spoiled[0, 0] = -np.inf
    replace(reply, WEIGHT, spoiled)


def terabytes(reply):
    """A header of NumPy's that claims four terabytes, before four bytes."""
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
    return reply.content["update"]["payload"].data


def resend(reply, data):
    array = Array("uint8", (len(data),), "fedavg_app.bytes", data)
    reply.content["update"] = ArrayRecord({"payload": array})


def forged_version(reply):
    resend(reply, payload(reply)[:2] + (999).to_bytes(4, "little") + payload(reply)[6:])


def replayed(reply):
    resend(reply, KEPT.read_bytes())


def endless_update(reply):
    """An update that claims 2^32 - 1 entries."""
    resend(reply, payload(reply)[:7] + b"\xff" * 4 + payload(reply)[11:])


def noise(reply):
    resend(reply, payload(reply)[:6] + np.random.default_rng(1).bytes(4000))


# The attacks of clients 1 and 2 in round 1, in round 2, and so on, and what must be said of them.
NAN = "array '1.weight' has NaN or infinite values"
ON_MODELS = [
    (oversized, "array '1.weight' is float32[20, 784], expected float32[10, 784]"),
    (other_dtype, "array '1.weight' is float64[10, 784], expected float32[10, 784]"),
    (not_a_number, NAN),
    (terabytes, "array '1.weight' is float32[10, 100000000000], expected float32[10, 784]"),
    (garbage, "array '1.weight' has an unreadable header"),
    (many_examples, "num-examples is 1000000000000, max-examples is 1000000000"),
    (failure, "everything is fine"),
    (infinite, NAN),
]
ON_UPDATES = [
    (forged_version, "trained from version 999, not 0"),
    (noise, "undecodable update: "),
    (replayed, "trained from version 0, not 1"),
    (endless_update, "k = 4294967295 do not fit"),
]


def install():
    """Make every `ClientApp` of this process spoil its replies to training messages."""
    honest = ClientApp.__call__

    def hostile(self, message, context):
        reply = honest(self, message, context)
        if message.metadata.message_type.startswith("train"):
            client = context.node_config["partition-id"]
            number = 2 * (message.content["config"]["server-round"] - 1) + client - 1
            compressed = "update" in reply.content
            if compressed and number == 0:
                KEPT.write_bytes(payload(reply))
            attack, _ = (ON_UPDATES if compressed else ON_MODELS)[number]
            attack(reply)
        return reply

    ClientApp.__call__ = hostile
