"""An ASGI middleware that judges what registered devices send before the SuperLink stores it.

Flower checks a request's signature and stores what it carries, whoever it says it is from and
whatever its size. The gate receives one reply to each message that a device was given, of a size
that fits, and hands it over when all of it has come; `replies` decides. It refuses other requests
with HTTP 403 and one line, or 413 if the body is too large to be read; a SuperNode drops the reply
and continues, and the run gets an error with the reason in its place.
"""

import asyncio
import logging
from contextlib import nullcontext
from typing import Any

from flwr.proto.fleet_pb2 import (
    ActivateNodeResponse,
    PullMessagesRequest,
    PullMessagesResponse,
    PushMessagesRequest,
)
from flwr.proto.message_pb2 import (
    ConfirmMessageReceivedRequest,
    PushObjectRequest,
    PushObjectResponse,
)
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from sqlalchemy.exc import DatabaseError
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from deployment.superlink.deliveries import Deliveries
from deployment.superlink.hand_over import NotStoredError, hand_over, report_error
from deployment.superlink.monitor import Monitor
from deployment.superlink.replies import DeliveredMessage, RefusedError, Replies
from deployment.superlink.requests import FLEET, answer_of, protobuf, read_body, signer

ANNOUNCE, OBJECT = "push-messages", "push-object"
REQUESTS: dict[str, Any] = {
    "pull-messages": PullMessagesRequest,
    ANNOUNCE: PushMessagesRequest,
    OBJECT: PushObjectRequest,
    "confirm-message-received": ConfirmMessageReceivedRequest,
}
# Limits of requests' bodies, which the gate reads before it judges them: a chunk of an array has
# 5 MiB, and a content that is one object up to 8 MiB. That of an announcement is the run's. Who is
# no device sends none of these.
MAX_OBJECT_BYTES, MAX_OTHER_BODY_BYTES = 8 * 2**20, 64 * 2**10
# Requests of one key that are served at a time; others wait. Flower's SuperNodes have up to three.
CONCURRENT = 4
# Replies that are handed over at a time: the SuperLink's database takes one write at a time.
HAND_OVERS = 4

_log = logging.getLogger("flwr")


class Gate:
    """Serve what an honest device would send; refuse the rest.

    Args:
        app: Flower's SuperLink.
        replies: Decides which replies are received.
        monitor: Counts what is served and refused.
        deliveries: Knows the devices for which there is nothing.

    Attributes:
        handing_over: What is being handed over.
    """

    def __init__(
        self, app: ASGIApp, replies: Replies, monitor: Monitor, deliveries: Deliveries
    ) -> None:
        self._app, self._replies, self._monitor = app, replies, monitor
        self._deliveries = deliveries
        # By key that the SuperLink has served: its node, and what bounds its requests.
        self._known: dict[bytes, tuple[int, asyncio.Semaphore]] = {}
        self._stranger = 0, asyncio.Semaphore(CONCURRENT)
        self._hand_overs = asyncio.Semaphore(HAND_OVERS)
        self.handing_over: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] != "http" or not scope["path"].startswith(FLEET):
            own = self._monitor.answer(scope["path"]) if scope["type"] == "http" else None
            try:
                await (own or self._app)(scope, receive, send)
            except (OSError, DatabaseError) as error:  # of a run, whose request fails
                self._monitor.failed_to_answer(first_line(error))
                raise
            return
        name = scope["path"].removeprefix(FLEET)
        headers = dict(reversed(scope["headers"]))  # the first of a name, which Flower reads
        length, key = int(headers.get(b"content-length", 0)), signer(headers)
        is_known = key in self._known
        node_id, slots = self._known.get(key, self._stranger)
        if length > (most := self._most_bytes(name, node_id)):
            async with slots:
                reason = f"{name} of {length} bytes, at most {most} are read"
                refusal = await self._refuse(413, reason, name, scope, node_id)
            await refusal(scope, receive, send)
            return
        # A device that is slow holds its own slots; strangers share theirs, so these are held
        # neither while a request is read nor while its answer is sent.
        async with slots if is_known else nullcontext():
            body = await read_body(receive)
            if body is None:
                return
            async with nullcontext() if is_known else slots:
                answer, served = await self._serve(name, body, scope, node_id)
            if served and key and key not in self._known:
                self._known[key] = served, asyncio.Semaphore(CONCURRENT)
            # Only now, since the device may at once send what this allows.
            await answer(scope, receive, send)

    def _most_bytes(self, name: str, node_id: int) -> int:
        if name == ANNOUNCE:
            return self._replies.most_announced(node_id)
        return MAX_OBJECT_BYTES if name == OBJECT and node_id else MAX_OTHER_BODY_BYTES

    async def _serve(
        self, name: str, body: bytes, scope: Scope, node_id: int
    ) -> tuple[Response, int]:
        """Return the answer to a request, and the node that has signed it, 0 for none.

        Args:
            name: The request's.
            body: Its content.
            scope: The connection.
            node_id: The node whose key signed it, whatever node it names; 0 for a stranger, whose
                refusals are not reported to the run.
        """
        request: Any = None
        try:
            if name in REQUESTS:
                request = REQUESTS[name].FromString(body)
            named = request.node.node_id if request is not None else 0
            if name in (ANNOUNCE, OBJECT):
                answer = await self._receive(request, scope, node_id)
                self._monitor.served(len(body), len(answer.body))
                return answer, node_id
            if isinstance(request, ConfirmMessageReceivedRequest):
                self._replies.check_confirmed(request)
            elif isinstance(request, PullMessagesRequest):
                if named == node_id and self._deliveries.has_nothing(node_id):
                    self._monitor.asked(node_id, PullMessagesResponse())
                    return protobuf(), node_id
                self._deliveries.looking(named)
            answer = await answer_of(self._app, scope, body)
        except (RefusedError, DecodeError) as error:
            reason = f"{type(error).__name__}: {error}" if request is None else str(error)
            return await self._refuse(403, reason, name, scope, node_id), 0
        except (OSError, DatabaseError) as error:  # the disk is full, or the database locked
            self._monitor.failed_to_answer(first_line(error))
            # A SuperNode repeats the request; after a status of 500 it would end.
            return JSONResponse({"detail": "the SuperLink cannot store anything now"}, 503), 0
        except Exception as error:
            self._monitor.failed_to_answer(f"{type(error).__name__}: {error}")
            raise
        if answer.status_code == 401:
            client = scope.get("client") or ("unknown", 0)
            self._monitor.unauthorised(f"node {node_id}" if node_id else client[0], name)
        elif answer.status_code >= 500:
            self._monitor.failed_to_answer(f"it answers with status {answer.status_code}")
        if answer.status_code != 200:
            return answer, 0
        content = bytes(answer.body)
        self._monitor.served(len(body), len(content))
        if name == "activate-node":
            named = int(ActivateNodeResponse.FromString(content).node_id)
        elif isinstance(request, PullMessagesRequest):
            given = PullMessagesResponse.FromString(content)
            self._replies.note_given(named, given)
            self._monitor.asked(named, given)
            self._deliveries.given(named, len(given.messages_list))
        elif isinstance(request, ConfirmMessageReceivedRequest):
            self._deliveries.fetched(named)
        return answer, named

    async def _receive(self, request: Any, scope: Scope, node_id: int) -> Response:
        """Receive the announcement of a reply or one of its objects; return the answer.

        Raises:
            RefusedError: It is not to be served.
        """
        if not node_id or request.node.node_id != node_id:
            raise RefusedError(f"it is not signed with the key of node {request.node.node_id}")
        if isinstance(request, PushMessagesRequest):
            opened = self._replies.announce(request, scope)
            self._monitor.replied(node_id)
            return protobuf(opened.SerializeToString())
        stored = protobuf(PushObjectResponse(stored=True).SerializeToString())
        given = self._replies.receiving(request)
        if (upload := given.upload) is None:  # it has arrived: an answer was lost
            return stored
        given.scope = scope
        async with upload.lock:
            was_complete = upload.is_complete
            if self._replies.receiving(request).upload is not None:  # it may be over meanwhile
                await asyncio.to_thread(upload.take, request.object_id, request.object_content)
        if upload.is_complete and not was_complete:
            task = asyncio.create_task(self._hand_over(given))
            self.handing_over.add(task)
            task.add_done_callback(self.handing_over.discard)
        return stored

    async def _hand_over(self, given: DeliveredMessage) -> None:
        """Hand over a reply that has come; where that fails, the run gets an error instead."""
        async with self._hand_overs:
            try:
                await hand_over(self._app, given)
            except Exception as error:  # whatever the SuperLink raises, such as a locked database
                if not isinstance(error, NotStoredError) or error.is_failure:
                    self._monitor.failed_to_answer(first_line(error))
                _log.warning("a reply of node %d is lost: %s", given.node_id, error)
                await self._report(given, f"it could not be stored: {error}", given.scope)

    async def _refuse(
        self, status: int, reason: str, name: str, scope: Scope, node_id: int
    ) -> Response:
        """Return the answer to a request that is not served; let the run know if it was a reply's.

        Args:
            status: The answer's.
            reason: Why it is not served.
            name: The request's.
            scope: The connection.
            node_id: The node whose key signed it; 0 for a stranger.
        """
        self._monitor.refused(node_id, name, reason)
        if node_id and name in (ANNOUNCE, OBJECT):
            given = self._replies.ended_by(node_id, is_object=name == OBJECT)
            if given is not None:
                await self._report(given, reason, scope)
        return JSONResponse({"detail": f"refused: {reason}"}, status)

    async def _report(self, given: DeliveredMessage, reason: str, scope: Scope) -> None:
        try:
            await report_error(self._app, given, reason, scope)
        except NotStoredError as error:
            _log.warning("could not report an error of node %d: %s", given.node_id, error)


def first_line(error: Exception) -> str:
    """Return what a database's error says, without its SQL."""
    return str(error).partition("\n")[0]
