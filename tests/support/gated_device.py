"""A device before the SuperLink's gate: messages and replies are Flower's own."""

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_to_proto
from flwr.proto.fleet_pb2 import PullMessagesResponse, PushMessagesRequest
from flwr.proto.message_pb2 import PushObjectRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree

from deployment.superlink.reply_limits import Replies
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

    def __init__(self, replies=None, node_id=NODE, arrays=(MODEL,), number=1):
        identify_server(RUN)
        self.replies, self.node_id = replies or Replies(), node_id
        content = RecordDict({**record(*arrays), "config": ConfigRecord({"round": number})})
        self.message = Message(content, dst_node_id=node_id, message_type="train", group_id="12")
        proto, tree, self.posted = as_sent(self.message)
        for object_id, part in self.posted.items():
            self.replies.note_posted(object_id, part)
        self.given = PullMessagesResponse(messages_list=[proto], message_object_trees=[tree])
        self.replies.note_given(node_id, self.given)

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
        """Announce a reply; return its objects, and its session."""
        request, contents = self.announcement(content, **metadata)
        return contents, self.replies.announce(request, {}).session_id

    def push(self, object_id, content, session, node_id=None):
        """Send an object; return the reply that it belongs to."""
        request = PushObjectRequest(
            node=Node(node_id=node_id or self.node_id), run_id=RUN, session_id=session,
            object_id=object_id, object_content=content,
        )  # fmt: skip
        given = self.replies.receiving(request)
        given.upload.take(object_id, content)
        return given

    def reply(self, content):
        """Send a reply; return what the gate has received of it, and its objects."""
        contents, session = self.announce(content)
        for object_id, part in contents.items():
            given = self.push(object_id, part, session)
        assert given.upload.is_complete
        return given.upload, contents


def forged_record(data, numbers):
    content = record()
    content["arrays"]["a"] = forged_array(data, numbers)
    return content
