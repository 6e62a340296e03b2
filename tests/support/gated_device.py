"""A device before the SuperLink's gate: messages and replies are Flower's own."""

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_to_proto
from flwr.proto.fleet_pb2 import PullMessagesResponse, PushMessagesRequest, PushMessagesResponse
from flwr.proto.message_pb2 import (
    PullObjectRequest,
    PushObjectRequest,
)
from flwr.proto.node_pb2 import Node
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree

from deployment.superlink.gate_rules import GateRules
from fedavg_app.flower_internals import identify_server
from tests.support.hostile import forged_array

RUN, NODE = 7, 5
MODEL = np.zeros(10_000, np.float32)


def record(*arrays):
    named = {f"a{number}": Array(array) for number, array in enumerate(arrays)}
    return RecordDict({"arrays": ArrayRecord(named), "metrics": MetricRecord({"num-examples": 3})})


def as_sent(message):
    """Return what announces a message, its tree, and its objects' contents by id."""
    message.metadata.__dict__["_message_id"] = message.object_id
    contents = {key: part.deflate() for key, part in get_all_nested_objects(message).items()}
    proto = message_to_proto(remove_content_from_message(message))
    return proto, get_object_tree(message), contents


class Device:
    """A node that was given one message of a run."""

    def __init__(self, rules=None, node_id=NODE, arrays=(MODEL,)):
        identify_server(RUN)
        self.rules, self.node_id = rules or GateRules(), node_id
        content = RecordDict({**record(*arrays), "config": ConfigRecord({"round": 1})})
        self.message = Message(content, dst_node_id=node_id, message_type="train", group_id="12")
        proto, tree, contents = as_sent(self.message)
        given = PullMessagesResponse(messages_list=[proto], message_object_trees=[tree])
        self.rules.note_given(node_id, given)
        for object_id, part in contents.items():
            self.rules.note_fetched(PullObjectRequest(object_id=object_id), len(part))

    def announcement(self, content, **metadata):
        """Return the request that announces a reply, and the reply's objects."""
        proto, tree, contents = as_sent(Message(content, reply_to=self.message))
        for key, value in metadata.items():
            setattr(proto.metadata, key, value)
        request = PushMessagesRequest(
            node=Node(node_id=self.node_id), messages_list=[proto], message_object_trees=[tree]
        )
        return request, contents

    def announce(self, content, **metadata):
        request, contents = self.announcement(content, **metadata)
        self.rules.check_reply(request)
        self.rules.note_announced(request, PushMessagesResponse(session_id="s"))
        return contents

    def push(self, object_id, content, session="s", node_id=None):
        request = PushObjectRequest(
            node=Node(node_id=node_id or self.node_id), run_id=RUN, session_id=session,
            object_id=object_id, object_content=content,
        )  # fmt: skip
        self.rules.check_object(request)
        self.rules.note_stored(request)

    def reply(self, content):
        for object_id, part in self.announce(content).items():
            self.push(object_id, part)


def forged_record(data, numbers):
    content = record()
    content["arrays"]["a"] = forged_array(data, numbers)
    return content
