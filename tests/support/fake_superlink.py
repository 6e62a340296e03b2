"""A SuperLink's Runtime API in this process, behind Flower's own network grid and HTTP client."""

import httpx
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_to_proto
from flwr.proto import message_pb2, runtime_pb2
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.run import Run
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.superlink.grid import HttpGrid

from fedavg_app.flower_internals import assign_message_id

PREFIX = "/v1/runtime/"


class FakeSuperLink:
    """Holds replies and their objects, and counts what is asked.

    Attributes:
        grid: Flower's `HttpGrid`, connected to this.
        objects: The content of each object by id; b"" for one that has not arrived yet.
        deleted: The ids of the messages that were deleted.
        requests: The path of every request.
        failures: How many of the next requests fail with status 500.
        sent: How many bytes of responses were read.
    """

    def __init__(self):
        self.objects, self.deleted, self.requests, self.sent = {}, [], [], 0
        self._replies = {}
        self.failures = 0
        self.grid = HttpGrid(token="token")
        invoker = self.grid._retry_invoker
        self.grid._client = RuntimeHttpClient("http://superlink", retry_invoker=invoker)
        self.grid._client._client = httpx.Client(transport=httpx.MockTransport(self._answer))
        self.grid.set_run(Run.create_empty(1))
        self.grid.push_messages = lambda messages: [assign_message_id(m) for m in messages]

    def add(self, message_id, reply, tree=None, **metadata):
        """Add the reply to a message; return the ids of its objects, those referred to first."""
        reply.metadata.__dict__["_message_id"] = reply.object_id
        contents = {key: part.deflate() for key, part in get_all_nested_objects(reply).items()}
        self.objects |= contents
        proto = message_to_proto(remove_content_from_message(reply))
        for key, value in metadata.items():
            setattr(proto.metadata, key, value)
        self._replies[message_id] = proto, tree or get_object_tree(reply)
        return list(contents)

    def _answer(self, request):
        path = request.url.path.removeprefix(PREFIX)
        self.requests.append(path)
        if self.failures:
            self.failures -= 1
            return httpx.Response(500)
        content = getattr(self, path.replace("-", "_"))(request.content).SerializeToString()

        class Stream(httpx.SyncByteStream):
            def __iter__(stream):
                self.sent += len(content)
                yield content

        return httpx.Response(200, headers={"content-length": str(len(content))}, stream=Stream())

    def pull_messages(self, content):
        (message_id,) = runtime_pb2.PullAppMessagesRequest.FromString(content).message_ids
        found = runtime_pb2.PullAppMessagesResponse()
        if message_id in self._replies:
            message, tree = self._replies.pop(message_id)
            found.messages_list.append(message)
            found.message_object_trees.append(tree)
        return found

    def pull_object(self, content):
        object_id = message_pb2.PullObjectRequest.FromString(content).object_id
        found = self.objects.get(object_id)
        return message_pb2.PullObjectResponse(
            object_found=found is not None,
            object_available=bool(found),
            object_content=found or b"",
        )

    def confirm_message_received(self, content):
        request = message_pb2.ConfirmMessageReceivedRequest.FromString(content)
        self.deleted.append(request.message_object_id)
        return message_pb2.ConfirmMessageReceivedResponse()
