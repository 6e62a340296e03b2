"""What is on its way between a run and its devices, so that nobody asks for what is not there.

A run announces a message before it uploads the message's objects, and a device that fetches them
asks again and again meanwhile. A device without a message asks for one every few seconds, a run for
each reply that is missing. Such a request takes 20 ms of the SuperLink's CPU time, so that a
hundred devices would keep it busy with requests in vain. Here they are answered without its
database: there is nothing yet.
"""

import time
from collections import deque
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
from deployment.superlink.reply_limits import Replies
from deployment.superlink.requests import answer_of, protobuf, read_body

PREFIX = "/v1/runtime/"
REQUESTS: dict[str, Any] = {
    "push-messages": PushAppMessagesRequest, "push-object": PushObjectRequest,
    "pull-messages": PullAppMessagesRequest,
}  # fmt: skip
# How long a device is told that there is nothing before the SuperLink is asked again, in case that
# something is there of which nothing was noted.
NOTHING_SECONDS = 300.0
# How long the objects of a message are waited for since the run, which may have died, uploaded one.
UPLOAD_SECONDS = 30.0
# The most devices that fetch messages at a time, and the longest for each: a SuperNode gives up a
# request after 5 s and repeats it, so a hundred that fetch at once get nothing and cost twice.
FETCHING, FETCH_SECONDS = 16, 10.0
# Messages of a device that are remembered until it looks, which one that is gone never does.
UNSEEN = 16
# Seconds between a run's looks for replies that no device has announced, whatever their number: the
# SuperLink has an error in place of one once its message has expired or its node is gone.
LOOK_SECONDS = 1.0


class Deliveries:
    """Knows the devices for which there is nothing, or nothing complete yet."""

    def __init__(self) -> None:
        # By object: until when it is awaited, in monotonic seconds, a list of one that the objects
        # of an upload share.
        self._awaited: dict[str, list[float]] = {}
        self._nothing: dict[int, float] = {}  # by node: until when, in monotonic seconds
        # By node: the objects of each message that it has not looked for yet.
        self._coming: dict[int, deque[list[str]]] = {}
        self._fetching: dict[int, float] = {}  # by node: until when, in monotonic seconds

    def posting(self, request: PushAppMessagesRequest) -> None:
        """Note that the run is about to post messages."""
        until = time.monotonic() + UPLOAD_SECONDS  # in case that the request breaks off
        self._nothing |= {message.metadata.dst_node_id: until for message in request.messages_list}

    def posted(self, request: PushAppMessagesRequest, missing: Iterable[str]) -> None:
        """Note that the run has posted messages, and is now to upload the missing objects."""
        now = time.monotonic()
        until = [now + UPLOAD_SECONDS]
        self._awaited = {name: end for name, end in self._awaited.items() if now < end[0]}
        self._awaited |= dict.fromkeys(missing, until)
        for message, tree in zip(request.messages_list, request.message_object_trees, strict=True):
            node_id = message.metadata.dst_node_id
            names = [part.object_id for part in iterate_object_tree(tree)]
            self._coming.setdefault(node_id, deque(maxlen=UNSEEN)).append(names)
            self._nothing.pop(node_id, None)

    def stored(self, object_id: str) -> None:
        """Note that an object of the run has arrived."""
        if until := self._awaited.pop(object_id, None):
            until[0] = time.monotonic() + UPLOAD_SECONDS

    def has_nothing(self, node_id: int) -> bool:
        """Return whether there is nothing for a node that is complete, or too many are fetching."""
        now = time.monotonic()
        coming = self._coming.get(node_id)
        if now < self._nothing.get(node_id, 0.0) or any(
            now < self._awaited.get(name, (0.0,))[0] for name in (coming[0] if coming else ())
        ):
            return True
        self._fetching = {node: end for node, end in self._fetching.items() if now < end}
        if len(self._fetching) >= FETCHING:
            return True
        self._nothing.pop(node_id, None)
        if coming:
            coming.popleft()
        return False

    def given(self, node_id: int, number: int) -> None:
        """Note how many messages the SuperLink has given to a node, which it is now to fetch."""
        now = time.monotonic()
        if number:
            self._fetching[node_id] = now + FETCH_SECONDS
        if not self._coming.get(node_id):  # else the run has posted more
            self._nothing.setdefault(node_id, now + NOTHING_SECONDS)

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
        self._next_look = 0.0  # for replies that nobody has announced, in monotonic seconds

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
            for given in self._replies.stalled():
                await report_error(self._app, given, "its upload has stopped", given.scope)
            ids = ids_of_replies(request)
            if wanted := list(ids):
                del ids[:]
                ids.extend(self._worth_a_look(wanted))
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

    def _worth_a_look(self, wanted: list[str]) -> list[str]:
        """Return the messages of which the SuperLink may have a reply, or an error in its place."""
        found = {name: self._replies.is_finished(name) for name in wanted}
        looks = None in found.values() and time.monotonic() >= self._next_look
        if looks:
            self._next_look = time.monotonic() + LOOK_SECONDS
        return [name for name, is_over in found.items() if is_over or (looks and is_over is None)]
