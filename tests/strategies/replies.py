"""Messages as a server sees them, good and bad."""

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from fedavg_app.internals import BaseGrid, error_reply, stamp


class Nodes(BaseGrid):
    """A grid that only names nodes."""

    def __init__(self, *node_ids):
        self.node_ids = list(node_ids)

    def get_node_ids(self):
        return self.node_ids

    def push_messages(self, messages):
        return [stamp(message) for message in messages]

    def pull_messages(self, message_ids):
        return []


def record(**arrays):
    return ArrayRecord({name: Array(np.asarray(array)) for name, array in arrays.items()})


def model(value=0.0):
    return record(w=np.full((2, 3), value, np.float32), b=np.full(3, value, np.float32))


def reply(node, arrays=None, metrics=None, **extra):
    """Return node's reply; ``arrays`` and ``metrics`` default to good ones, False leaves out."""
    sent = Message(RecordDict(), dst_node_id=node, message_type="train")
    content = RecordDict(extra)
    if arrays is not False:
        content["arrays"] = model(1.0) if arrays is None else arrays
    if metrics is not False:
        content["metrics"] = MetricRecord(metrics or {"num-examples": 10})
    return Message(content, reply_to=sent)


def failed(node, reason):
    return error_reply(Message(RecordDict(), dst_node_id=node, message_type="train"), reason)


def configure(strategy, arrays, *nodes, rate=0.5):
    config = ConfigRecord({"learning-rate": rate})
    return list(strategy.configure_train(1, arrays, config, Nodes(*nodes)))


def values(arrays):
    return {name: array.numpy() for name, array in arrays.items()}
