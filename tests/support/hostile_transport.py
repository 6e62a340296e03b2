"""What a hostile device does below its app: malformed objects, and uploads that do not end.

Like `tests/support/hostile.py` it is installed in the device's processes. The client's process, a
new one for every message, forges the objects of its reply; the SuperNode's uploads them, or not.
"""

import json
import time
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord
from flwr.app.message.arraychunk import ArrayChunk
from flwr.clientapp import ClientApp
from flwr.supercore.inflatable.inflatable_object import add_header_to_object_body
from flwr.supernode import start_client_internal as supernode

from fedavg_app.packed_content import unpack

UPLOAD = Path(__file__).parent / "upload"
SECONDS_PER_OBJECT = 60
MEGABYTES, REPEATED = 100, 15_000


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


def unreadable_name(reply):
    """Rename an array, or an update, to half a surrogate pair: JSON can carry it, UTF-8 cannot."""
    named = reply.content.get("arrays", reply.content)
    named["\ud800"] = named.pop(next(iter(named)))


def long_error(reply):
    del reply
    raise ValueError("x" * 100_000)


def large_object(reply):
    """An object that is more than the gate reads."""
    reply.content["x"] = ConfigRecord({"x": bytes(65 * 2**20)})


def dying(reply):
    del reply
    UPLOAD.write_text("die")


def trickling(reply):
    del reply
    UPLOAD.write_text("trickle")


# One a round, and a part of the reason with which it is rejected. Those that wait for the deadline
# come last: their device is still busy then.
DELETED = "its reply was refused, or its SuperNode unregistered"  # where the gate has deleted it
MALFORMED = [
    (false_chunk, DELETED),
    (negative_chunk, DELETED),
    (repeated_chunk, DELETED),
    (large, DELETED),
    (many_arrays, "refused by the SuperLink's gate: 1"),
    (shared_record, DELETED),
    (unreadable_name, "array"),
    (large_object, DELETED),
    (long_error, "refused by the SuperLink's gate: its metadata have 100"),
]
UNFINISHED = [(dying, "no reply in time"), (trickling, "no reply in time")]
ATTACKS = MALFORMED + UNFINISHED
# The reasons that a compressed strategy gives, where they are others.
REASONS_COMPRESSED = {unreadable_name: "no ConfigRecord 'update'"}


def install():
    """Make every reply of this process an attack, and let its uploads end as `UPLOAD` says."""
    honest, upload = ClientApp.__call__, supernode.push_object_contents_from_iterable

    def hostile(self, message, context):
        reply = honest(self, message, context)
        if message.metadata.message_type.startswith("train"):
            unpack(reply)  # it travels as the objects that the attack forges
            attack, _ = ATTACKS[message.content["config"]["server-round"] - 1]
            attack(reply)
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
