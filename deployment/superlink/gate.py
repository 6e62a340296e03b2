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
from dataclasses import dataclass
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
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from deployment.superlink.deliveries import Deliveries
from deployment.superlink.hand_over import hand_over, report_error
from deployment.superlink.monitor import Monitor
from deployment.superlink.reply_limits import DeliveredMessage, RefusedError, Replies, Upload
from deployment.superlink.requests import FLEET, answer_of, protobuf, read_body, signer

ANNOUNCE, OBJECT = "push-messages", "push-object"
REQUESTS: dict[str, Any] = {
    "pull-messages": PullMessagesRequest, ANNOUNCE: PushMessagesRequest, OBJECT: PushObjectRequest,
    "confirm-message-received": ConfirmMessageReceivedRequest,
}  # fmt: skip
# Limits of requests' bodies, which the gate reads before it judges them: a chunk of an array has
# 5 MiB, and a content that is one object up to 8 MiB. That of an announcement is the run's. Who is
# no device sends none of these.
MAX_OBJECT_BYTES, MAX_OTHER_BODY_BYTES = 8 * 2**20, 64 * 2**10
# Requests of one key that are served at a time; others wait. Flower's SuperNodes have up to three.
CONCURRENT = 4
# Replies that are handed over at a time: the SuperLink's database takes one write at a time.
HAND_OVERS = 4

_log = logging.getLogger("flwr")


@dataclass
class Sent:
    """A request of the fleet API."""

    name: str
    scope: Scope
    key: bytes  # the public key whose owner has signed it; empty where nobody has
    # The node of that key, whatever node the request names; 0 for a stranger, whose refusals are
    # not reported to a run.
    node_id: int
    body: bytes = b""  # empty if it is too large to be read


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
            found = self._monitor.answer(scope["path"]) if scope["type"] == "http" else None
            try:
                await (found or self._app)(scope, receive, send)
            except (OSError, DatabaseError) as error:  # of a run, whose request fails
                self._monitor.failed_to_answer(first_line(error))
                raise
            return
        headers = dict(reversed(scope["headers"]))  # the first of a name, which Flower reads
        key, length = signer(headers), int(headers.get(b"content-length", 0))
        node_id, slots = self._known.get(key, self._stranger)
        sent = Sent(scope["path"].removeprefix(FLEET), scope, key, node_id)
        most = self._most_bytes(sent)
        # A device that is slow holds its own slots; strangers share theirs, so these are held
        # neither while a request is read nor while its answer is sent.
        async with slots if node_id else nullcontext():
            body = await read_body(scope, receive) if length <= most else b""
            if body is None:
                return
            sent.body = body
            async with nullcontext() if node_id else slots:
                if length <= most:
                    answer = await self._answer(sent)
                else:
                    reason = f"{sent.name} of {length} bytes, at most {most} are read"
                    answer = await self._refuse(sent, reason, 413)
            # Only now, since the device may at once send what this allows.
            await answer(scope, receive, send)

    def _most_bytes(self, sent: Sent) -> int:
        if sent.name == ANNOUNCE:
            return self._replies.most_announced(sent.node_id)
        return MAX_OBJECT_BYTES if sent.name == OBJECT and sent.node_id else MAX_OTHER_BODY_BYTES

    async def _answer(self, sent: Sent) -> Response:
        """Return the answer to a request, which is a refusal or a failure if need be."""
        try:
            answer = await self._judge(sent)
        except RefusedError as error:
            return await self._refuse(sent, str(error), 403)
        except (OSError, DatabaseError) as error:  # the disk is full, or the database locked
            self._monitor.failed_to_answer(first_line(error))
            # A SuperNode repeats the request; after a status of 500 it would end.
            return JSONResponse({"detail": "the SuperLink cannot store anything now"}, 503)
        except Exception as error:
            self._monitor.failed_to_answer(f"{type(error).__name__}: {error}")
            raise
        client = sent.scope.get("client") or ("unknown", 0)
        source = f"node {sent.node_id}" if sent.node_id else client[0]
        self._monitor.answered(source, sent.name, len(sent.body), answer)
        return answer

    async def _judge(self, sent: Sent) -> Response:
        """Return the answer to a request.

        Raises:
            RefusedError: It is not to be served.
        """
        if sent.name not in REQUESTS:
            return await self._pass(sent)
        try:
            request = REQUESTS[sent.name].FromString(sent.body)
        except DecodeError as error:
            raise RefusedError(f"DecodeError: {error}") from error
        named: int = request.node.node_id
        if isinstance(request, PullMessagesRequest):
            return await self._give(sent, named)
        if isinstance(request, ConfirmMessageReceivedRequest):
            self._replies.check_confirmed(request)
            answer = await self._pass(sent, named)
            if answer.status_code == 200:
                self._deliveries.fetched(named)
            return answer
        if not sent.node_id or named != sent.node_id:
            raise RefusedError(f"it is not signed with the key of node {named}")
        if isinstance(request, PushMessagesRequest):
            opened = self._replies.announce(request, sent.scope)
            self._monitor.replied(named)
            return protobuf(opened.SerializeToString())
        await self._receive(request, sent.scope)
        return protobuf(PushObjectResponse(stored=True).SerializeToString())

    async def _pass(self, sent: Sent, named: int = 0) -> Response:
        """Return the SuperLink's answer, which vouches that the key is that of the node named."""
        answer = await answer_of(self._app, sent.scope, sent.body)
        if answer.status_code == 200 and sent.key and not sent.node_id:
            if sent.name == "activate-node":
                named = int(ActivateNodeResponse.FromString(bytes(answer.body)).node_id)
            if named:
                self._known.setdefault(sent.key, (named, asyncio.Semaphore(CONCURRENT)))
        return answer

    async def _give(self, sent: Sent, named: int) -> Response:
        """Return the answer to a device that asks for a message."""
        given = PullMessagesResponse()
        if named == sent.node_id and self._deliveries.has_nothing(named):
            self._monitor.asked(named, given)
            return protobuf()
        answer = await self._pass(sent, named)
        if answer.status_code == 200:
            given.ParseFromString(bytes(answer.body))
            self._replies.note_given(named, given)
            self._monitor.asked(named, given)
            self._deliveries.given(named, len(given.messages_list))
        return answer

    async def _receive(self, request: PushObjectRequest, scope: Scope) -> None:
        """Receive an object of a reply that was announced; hand the reply over with the last."""
        given = self._replies.receiving(request)
        if (upload := given.upload) is None:  # it has arrived: an answer was lost
            return
        given.scope = scope
        async with upload.lock:
            was_complete = upload.is_complete
            if self._replies.receiving(request).upload is not None:  # it may be over meanwhile
                await asyncio.to_thread(upload.take, request.object_id, request.object_content)
        if upload.is_complete and not was_complete:
            task = asyncio.create_task(self._hand_over(given, upload))
            self.handing_over.add(task)
            task.add_done_callback(self.handing_over.discard)

    async def _hand_over(self, given: DeliveredMessage, upload: Upload) -> None:
        """Hand over a reply that has come; where that fails, the run gets an error instead."""
        async with self._hand_overs:
            try:
                await hand_over(self._app, given.scope, upload.announcement, upload.content)
                given.end(has_arrived=True)
            except Exception as error:  # whatever the SuperLink raises, such as a locked database
                if not isinstance(error, HTTPException) or not 400 <= error.status_code < 500:
                    self._monitor.failed_to_answer(first_line(error))
                _log.warning("a reply of node %d is lost: %s", given.node_id, error)
                reason = f"it could not be stored: {error}"
                await report_error(self._app, given, reason, given.scope)

    async def _refuse(self, sent: Sent, reason: str, status: int) -> Response:
        """Return the answer to a request that is not served; let the run know if it was a reply."""
        self._monitor.refused(sent.node_id, sent.name, reason)
        if sent.node_id and sent.name in (ANNOUNCE, OBJECT):
            given = self._replies.ended_by(sent.node_id, is_object=sent.name == OBJECT)
            if given is not None:
                await report_error(self._app, given, reason, sent.scope)
        return JSONResponse({"detail": f"refused: {reason}"}, status)


def first_line(error: Exception) -> str:
    """Return what a database's error says, without its SQL."""
    return str(error).partition("\n")[0]
