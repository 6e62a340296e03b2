"""Client mods for tests, each of which can be named as "tests.support.client_mods:NAME"."""

import json
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
from flwr.app import Array
from flwr.clientapp.mod import LocalDpMod

HERE = __name__

# Without noise, so that what the clipping does can be compared.
clipping = LocalDpMod(clipping_norm=0.01, sensitivity=0.0, epsilon=1.0, delta=0.1)
# What the mods below have seen, in the order of their calls.
calls: list = []


def outer(message, context, call_next):
    calls.append("outer")
    return call_next(message, context)


def inner(message, context, call_next):
    """Note the records of the message and of the reply."""
    calls.append((message.metadata.message_type, *message.content))
    reply = call_next(message, context)
    calls.append(tuple(reply.content))
    return reply


def dying(message, context, call_next):
    """Kill the process of every client of round 2."""
    if message.content["config"]["server-round"] == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return call_next(message, context)


def reading(message, context, call_next):
    """Fail in a library's function."""
    return call_next(message, context, json.loads("{"))


def signs_of_life(message, context, call_next):
    """Append to the file $SIGNS_OF_LIFE what tells this message's process from others."""
    import torch

    calls.append("here")
    signs = {
        "process": os.getpid(),
        "calls": len(calls),
        "numbers": [np.random.rand(), torch.rand(1).item()],  # noqa: NPY002 - the shared one
        "app": sys.modules["fedavg_app.client_app"].__file__,
        "strategy": sys.modules["strategies"].__file__,
    }
    with Path(os.environ["SIGNS_OF_LIFE"]).open("a") as file:
        file.write(json.dumps(signs) + "\n")
    return call_next(message, context)


def overwriting(message, context, call_next):
    """Overwrite all that the client was given, once it is done."""
    records = message.content.array_records.values()
    given = [array for record in records for array in record.values()]
    reply = overwriting_records(message, context, call_next)
    for array in given:
        array.data, array.shape = bytes(len(array.data)), (0,)
    return reply


def overwriting_records(message, context, call_next):
    """Overwrite the same but for the arrays themselves, which a strategy may keep in its state."""
    reply = call_next(message, context)
    for name, record in list(message.content.items()):
        for key, value in list(record.items()):
            if isinstance(value, Array):
                record[key] = Array(np.zeros(1, np.float32))
            elif isinstance(value, list):
                value.clear()
            elif isinstance(value, float):
                record[key] = value / 2
        record["left"] = next(iter(record.values()), 0)
        del message.content[name]
    context.run_config.clear()
    context.node_config.clear()
    return reply


def forgetful(message, context, call_next):
    call_next(message, context)


def with_norm(message, context, call_next):
    reply = call_next(message, context)
    reply.content["metrics"]["grad-norm"] = 1.5
    return reply


def busy(message, context, call_next):
    """Take a while, and note round, client and process in a file beside the flag's."""
    from tests.support.faulty_task import FLAG

    if message.metadata.message_type == "train":
        time.sleep(0.1)
        words = message.metadata.group_id, context.node_id, os.getpid()
        with Path(os.environ[FLAG]).with_name("busy").open("a") as file:
            file.write(" ".join(map(str, words)) + "\n")
    return call_next(message, context)
