"""What is on its way between a run and its devices, so that nobody asks for what is not there.

A run announces a message before it uploads the message's objects, and a device that fetches them
asks again and again meanwhile. A device without a message asks for one every few seconds, a run for
each reply that is missing. Such a request takes 20 ms of the SuperLink's CPU time, so that a
hundred devices would keep it busy with requests in vain. Here they are answered without its
database: there is nothing yet.
"""

import time
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

from flwr.proto.message_pb2 import PushObjectRequest, PushObjectResponse
from flwr.proto.runtime_pb2 import (
    PullAppMessagesRequest,
    PushAppMessagesRequest,
    PushAppMessagesResponse,
)
from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
from starlette.types import ASGIApp, Receive, Scope, Send

from deployment.superlink.hand_over import report_error
from deployment.superlink.internals import ids_of_replies
from deployment.superlink.replies import Replies
from deployment.superlink.requests import answer_of, protobuf, read_body

PREFIX = "/v1/runtime/"
REQUESTS: dict[str, Any] = {
    "push-messages": PushAppMessagesRequest,
    "push-object": PushObjectRequest,
    "pull-messages": PullAppMessagesRequest,
}
# How long a device is told that there is nothing before the SuperLink is asked again.
NOTHING_SECONDS = 30.0
# The most devices that fetch messages at a time, and the longest for each: a SuperNode gives up a
# request after 5 s and repeats it, so a hundred that fetch at once get nothing and cost twice.
FETCHING, FETCH_SECONDS = 16, 10.0
# How long a run is told that a reply is not there while its device has not announced it.
LOOK_SECONDS = 5.0
# Objects that are awaited at a time; of more, the oldest are forgotten.
AWAITED = 2**18


class Deliveries:
    """Knows the devices for which there is nothing, or nothing complete yet."""

    def __init__(self) -> None:
        self._awaited: OrderedDict[str, None] = OrderedDict()
        # By node: until when, in monotonic seconds, and the objects that must be there before.
        self._nothing: dict[int, tuple[float, list[str] | None]] = {}
        self._fetching: dict[int, float] = {}  # by node: until when, in monotonic seconds

    def posting(self, request: PushAppMessagesRequest) -> None:
        """Note that the run is about to post messages."""
        for message in request.messages_list:
            until = time.monotonic() + NOTHING_SECONDS
            self._nothing[message.metadata.dst_node_id] = until, None

    def posted(self, request: PushAppMessagesRequest, missing: Iterable[str]) -> None:
        """Note that the run has posted messages, and is now to upload the missing objects."""
        self._awaited.update(dict.fromkeys(missing))
        while len(self._awaited) > AWAITED:
            self._awaited.popitem(last=False)
        self.posting(request)
        pairs = zip(request.messages_list, request.message_object_trees, strict=True)
        for message, tree in pairs:
            until, before = self._nothing[message.metadata.dst_node_id]
            names = [part.object_id for part in iterate_object_tree(tree)]
            self._nothing[message.metadata.dst_node_id] = until, [*(before or ()), *names]

    def stored(self, object_id: str) -> None:
        """Note that an object of the run has arrived."""
        self._awaited.pop(object_id, None)

    def has_nothing(self, node_id: int) -> bool:
        """Return whether there is nothing for a node that is complete, or too many are fetching."""
        now = time.monotonic()
        until, objects = self._nothing.get(node_id, (0.0, None))
        if now < until and (objects is None or any(name in self._awaited for name in objects)):
            return True
        self._fetching = {node: end for node, end in self._fetching.items() if now < end}
        if len(self._fetching) >= FETCHING:
            return True
        self._nothing.pop(node_id, None)
        return False

    def given(self, node_id: int, number: int) -> None:
        """Note how many messages the SuperLink has given to a node, which it is now to fetch."""
        now = time.monotonic()
        if number:
            self._fetching[node_id] = now + FETCH_SECONDS
        else:  # unless the run has posted meanwhile
            self._nothing.setdefault(node_id, (now + NOTHING_SECONDS, None))

    def fetched(self, node_id: int) -> None:
        """Note that a node has confirmed its message."""
        self._fetching.pop(node_id, None)


class RunRequests:
    """An ASGI middleware that notes what a run sends, and gives it what has arrived.

    Args:
        app: Flower's SuperLink.
        deliveries: Where it is noted.
        replies: Learns how large the run's messages are, and knows the replies on their way.
    """

    def __init__(self, app: ASGIApp, deliveries: Deliveries, replies: Replies) -> None:
        self._app, self._deliveries, self._replies = app, deliveries, replies
        self._looked: OrderedDict[str, float] = OrderedDict()  # by message, in monotonic seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, without the messages for which there is no reply yet."""
        name = scope["path"].removeprefix(PREFIX) if scope["type"] == "http" else ""
        if name not in REQUESTS:
            await self._app(scope, receive, send)
            return
        body = await read_body(scope, receive)
        if body is None:
            return
        request = REQUESTS[name].FromString(body)
        if name == "pull-messages":
            await self._end_stalled()
            ids = ids_of_replies(request)
            if wanted := list(ids):
                del ids[:]
                ids.extend(filter(self._should_ask_superlink, wanted))
                body = request.SerializeToString()
                if not ids:
                    await protobuf()(scope, receive, send)
                    return
        elif name == "push-messages":
            self._deliveries.posting(request)
        answer = await answer_of(self._app, scope, body)
        content = bytes(answer.body) if answer.status_code == 200 else b""
        if name == "push-messages":
            opened = PushAppMessagesResponse.FromString(content)
            self._deliveries.posted(request, opened.objects_to_push)
        elif name == "push-object" and PushObjectResponse.FromString(content).stored:
            self._replies.note_posted(request.object_id, request.object_content)
            self._deliveries.stored(request.object_id)
        await answer(scope, receive, send)

    async def _end_stalled(self) -> None:
        for given in self._replies.stalled():
            await report_error(self._app, given, "its upload has stopped", given.scope)

    def _should_ask_superlink(self, message_id: str) -> bool:
        """Return whether the SuperLink may have something for a run that asks for a reply."""
        is_over = self._replies.is_finished(message_id)
        if is_over is None:  # the message may have expired, or its node been removed
            now = time.monotonic()
            is_over = now > self._looked.get(message_id, 0.0) + LOOK_SECONDS
            if is_over:
                self._looked[message_id] = now
                if len(self._looked) > AWAITED:
                    self._looked.popitem(last=False)
        return is_over
