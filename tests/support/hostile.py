"""What a hostile device sends: forged contents, malformed objects, and uploads that do not end.

It is installed in the device's processes, which have this module and a `sitecustomize.py` that
calls `install` on their path. The client's process, a new one for every message, trains as the app
does and forges its reply, another attack each round; the SuperNode's uploads it, or not.
"""

import json
import struct
import time
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord
from flwr.app.message.arraychunk import ArrayChunk
from flwr.clientapp import ClientApp
from flwr.supercore.inflatable.inflatable_object import add_header_to_object_body
from flwr.supernode import start_client_internal as supernode

from fedavg_app.packed_content import pack, unpack
from strategies.rounds.flower_arrays import OPAQUE
from strategies.rounds.messages import OWN, PAYLOAD

UPLOAD, FIRST_PAYLOAD = (Path(__file__).parent / name for name in ("upload", "first-payload"))
WEIGHT = "1.weight"
# Protocol, status, codec and round: see docs/protocol.md.
REPLY_HEAD = struct.Struct("<BBII")
SECONDS_PER_OBJECT = 60
MEGABYTES, REPEATED = 100, 15_000


def replace(reply, name, array):
    reply.content["arrays"][name] = array if isinstance(array, Array) else Array(array)


def forged(change):
    """Return an attack that replaces the weight by a function of it."""
    return lambda reply: replace(reply, WEIGHT, change(reply.content["arrays"][WEIGHT].numpy()))


def with_entry(value):
    """Return an attack that replaces an entry of the weight."""

    def change(weight):
        weight = weight.copy()
        weight[3, 4] = value
        return weight

    return forged(change)


# A NumPy header that claims four terabytes, before four bytes.
HEADER = b"{'descr': '<f4', 'fortran_order': False, 'shape': (10, 100000000000), }\n"
TERABYTES = b"\x93NUMPY\x01\x00" + len(HEADER).to_bytes(2, "little") + HEADER + bytes(4)


def unreadable(data):
    return forged(lambda _: Array("float32", (10, 784), "numpy.ndarray", data))


def many_examples(reply):
    reply.content["metrics"]["num-examples"] = 10**12


def failure(_):
    raise RuntimeError("no\nround 9: everything is fine")


def payload(reply):
    return reply.content[OWN][PAYLOAD].data


def replace_payload(reply, data):
    reply.content[OWN] = ArrayRecord({PAYLOAD: Array("uint8", (len(data),), OPAQUE, data)})


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
    reply.content[OWN] = ConfigRecord({PAYLOAD: "an update"})


def no_metrics(reply):
    del reply.content["metrics"]


def forged_array(data, numbers):
    """Return an array of one chunk whose object names the chunks with these numbers."""

    class Forged(Array):
        def deflate(self):
            body = {"dtype": "float32", "shape": [10, 784], "stype": "numpy.ndarray"}
            body["arraychunk_ids"] = numbers
            return add_header_to_object_body(json.dumps(body).encode(), self)

        @property
        def children(self):
            chunk = ArrayChunk(memoryview(self.data))
            return {chunk.object_id: chunk}

    Forged.__qualname__ = "Array"
    return Forged("float32", (10, 784), "numpy.ndarray", data)


def add(reply, name, array):
    """Add the array to the record of arrays, which a compressed strategy's reply has not."""
    if "arrays" not in reply.content:
        reply.content["arrays"] = ArrayRecord()
    reply.content["arrays"][name] = array


def false_chunk(reply):
    add(reply, "x", forged_array(bytes(1000), [7]))


def negative_chunk(reply):
    add(reply, "x", forged_array(bytes(1000), [-1]))


def repeated_chunk(reply):
    """Three gigabytes, from one chunk."""
    add(reply, "x", forged_array(bytes(200_000), [0] * REPEATED))


def large(reply):
    add(reply, "x", Array(np.random.default_rng(1).random(MEGABYTES * 2**17)))


def many_arrays(reply):
    for number in range(60):
        add(reply, f"x{number}", Array(np.array([number])))


def shared_record(reply):
    """Many names for one record, which is sent once."""
    record = ArrayRecord({"x": Array(np.zeros(25_000, np.float32))})
    for number in range(2000):
        reply.content[f"r{number}"] = record


def many_metrics(reply):
    """A record of some megabytes that takes some hundred once it is read."""
    reply.content["m"] = MetricRecord({f"m{number}": 0 for number in range(200_000)})


def unreadable_name(reply):
    """Rename an array, or an update, to half a surrogate pair: JSON can carry it, UTF-8 cannot."""
    record, name = reply.content.get("arrays"), WEIGHT
    if record is None:
        record, name = reply.content, OWN
    record["\ud800"] = record.pop(name)


def long_error(reply):
    del reply
    raise ValueError("x" * 100_000)


def large_object(reply):
    """An object that is more than the gate reads."""
    reply.content["x"] = ConfigRecord({"x": bytes(65 * 2**20)})


def ending(how):
    """Return what makes the upload of a reply end in this way."""
    return lambda _: UPLOAD.write_text(how)


# One a round, and a part of the reason with which it is rejected: first what only the server's app
# can reject. Those that wait for the deadline come last: their device is still busy then.
NOT_FINITE = "array '1.weight' has NaN or infinite values"
ON_MODELS = [
    (
        forged(lambda w: np.concatenate([w, w])),
        "'1.weight' is float32[20, 784], expected",
    ),
    (
        forged(lambda w: w.astype(np.float64)),
        "'1.weight' is float64[10, 784], expected",
    ),
    (with_entry(np.nan), NOT_FINITE),
    (unreadable(TERABYTES), "'1.weight' is float32[10, 100000000000], expected"),
    (unreadable(b"garbage" * 1000), "array '1.weight' has an unreadable header"),
    (many_examples, "num-examples is 1000000000000, max-examples is 1000000000"),
    (failure, "everything is fine"),
    (with_entry(-np.inf), NOT_FINITE),
]
ON_UPDATES = [
    (forged_round, "it answers round 999, and this is round 1; max-staleness is 0"),
    (noise, "undecodable update: "),
    (replayed, "it answers round 1, and this is round 3; max-staleness is 0"),
    (too_many_entries, "k = 4294967295, the sparsity allows "),
    (text_as_payload, "no ArrayRecord 'fedavg-strategies'"),
    (no_metrics, "no MetricRecord 'metrics'"),
]
REFUSED = "refused by the SuperLink's gate: "
MALFORMED, TOO_LARGE = REFUSED + "malformed object: ", "takes more than "
ON_THE_WAY = [
    (false_chunk, MALFORMED), (negative_chunk, MALFORMED),
    (repeated_chunk, TOO_LARGE), (large, TOO_LARGE), (many_arrays, REFUSED + "1"),
    (shared_record, REFUSED + "the reply unfolds to more than"), (many_metrics, TOO_LARGE),
    (unreadable_name, "array"), (large_object, REFUSED + "push-object of"),
    (long_error, REFUSED),
    (ending("die"), "no reply in time"), (ending("trickle"), "no reply in time"),
]  # fmt: skip
# The reasons that a compressed strategy gives, where they differ.
REASONS_COMPRESSED = {unreadable_name: "no ArrayRecord 'fedavg-strategies'"}


def attacks(*, compressed):
    return (ON_UPDATES if compressed else ON_MODELS) + ON_THE_WAY


def install():
    """Make every reply of this process an attack, and let its uploads end as `UPLOAD` says."""
    honest, upload = ClientApp.__call__, supernode.push_object_contents_from_iterable

    def hostile(self, message, context):
        reply = honest(self, message, context)
        if message.metadata.message_type.startswith("train"):
            unpack(reply)
            compressed = OWN in reply.content
            number = message.content["config"]["server-round"]
            if compressed and number == 1:
                FIRST_PAYLOAD.write_bytes(payload(reply))
            attack, expected = attacks(compressed=compressed)[number - 1]
            attack(reply)
            if (attack, expected) not in ON_THE_WAY:  # those travel as the objects that they forge
                reply.content = pack(reply.content)
        return reply

    def unfinished(object_contents, push_object_fn, **keywords):
        how = UPLOAD.read_text() if UPLOAD.exists() else ""
        UPLOAD.unlink(missing_ok=True)
        if not how:
            upload(object_contents, push_object_fn, **keywords)
        for number, (object_id, content) in enumerate(object_contents):
            if number and how == "die":
                raise ConnectionError("the device died")
            push_object_fn(object_id, content)
            time.sleep(SECONDS_PER_OBJECT if how == "trickle" else 0)

    ClientApp.__call__ = hostile
    supernode.push_object_contents_from_iterable = unfinished
