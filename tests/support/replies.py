"""Client replies as they come from a grid, valid and invalid, made with Flower's own classes."""

import struct

import numpy as np
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Error,
    Message,
    MetricRecord,
    RecordDict,
)

from fedavg_app.server.client_sampling import CohortGrid


def record(arrays):
    return ArrayRecord({name: Array(np.asarray(value)) for name, value in arrays.items()})


def reply_with(node, content):
    """Return the node's reply with a RecordDict, or an Error, as its content."""
    sent = Message(RecordDict(), dst_node_id=node, message_type="train")
    return Message(content, reply_to=sent)


def reply(node, arrays, num_examples=1, **metrics):
    """Return a training reply as our ClientApp makes it, with a dict or an ArrayRecord."""
    arrays = arrays if isinstance(arrays, ArrayRecord) else record(arrays)
    metrics = MetricRecord({"num-examples": num_examples, **metrics})
    return reply_with(node, RecordDict({"arrays": arrays, "metrics": metrics}))


def evaluated(node, num_examples, **metrics):
    metrics = MetricRecord({"num-examples": num_examples, **metrics})
    return reply_with(node, RecordDict({"metrics": metrics}))


def failed(node, reason="Traceback\n  ...\nZeroDivisionError: division by zero"):
    return reply_with(node, Error(0, reason))


def cohort(*nodes):
    """Return a grid that names these nodes and can do nothing else."""
    return CohortGrid(None, nodes)


def outcome_of_evaluation(runner, replies, server_round=1):
    """Return the outcome of an evaluation with these replies."""
    arrays = record({"w": np.zeros(1, np.float32)})
    runner.configure_evaluate(server_round, arrays, ConfigRecord(), cohort(1))
    return runner.finish_evaluation(replies)


def npy(header, body):
    """Return a .npy file with a header written by hand."""
    return b"\x93NUMPY\x01\0" + struct.pack("<H", len(header)) + header.encode("latin1") + body


def as_numpy(arrays):
    return {name: array.numpy() for name, array in arrays.items()}


def reasons(outcome):
    """Return an outcome's rejected replies as {node: text}."""
    return {node: str(error) for node, error in outcome.rejected.items()}
