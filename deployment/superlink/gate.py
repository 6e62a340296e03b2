"""An ASGI middleware that judges what registered devices send before the SuperLink stores it.

Flower checks a request's signature and stores what it carries, whoever it says it is from and
whatever its size. The gate takes one reply to each message that a device was given, of a size
that fits; `gate_rules` decides. It refuses other requests with HTTP 403 and one line, or 413 if the
body is too large to be read; a SuperNode drops the reply and continues. The run gets an error with
the reason in place of a reply whose announcement is refused. A reply of which an object is refused
is deleted, and the run hears that it is not there.
"""

import asyncio
from contextlib import nullcontext
from typing import Any

from flwr.proto.fleet_pb2 import (
    ActivateNodeResponse,
    PullMessagesRequest,
    PullMessagesResponse,
    PushMessagesRequest,
    PushMessagesResponse,
)
from flwr.proto.message_pb2 import (
    ConfirmMessageReceivedRequest,
    PullObjectRequest,
    PushObjectRequest,
    PushObjectResponse,
)
from flwr.proto.node_pb2 import Node
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deployment.superlink.asgi import EMPTY, answer_of, content_of, read_body
from deployment.superlink.deliveries import Deliveries
from deployment.superlink.gate_rules import GateRules, RefusedError
from deployment.superlink.internals import error_reply
from deployment.superlink.monitor import Monitor
from deployment.superlink.signer import signer

PREFIX = "/v1/fleet/"
REQUESTS: dict[str, Any] = {
    "pull-messages": PullMessagesRequest,
    "push-messages": PushMessagesRequest,
    "pull-object": PullObjectRequest,
    "push-object": PushObjectRequest,
    "confirm-message-received": ConfirmMessageReceivedRequest,
}
# Limits of requests' bodies: an announcement has about 70 bytes for each object, a chunk 5 MiB, and
# a content that is one object up to 8 MiB. The gate reads a body before it judges it.
MAX_OBJECT_BYTES = 8 * 2**20
MAX_BODY_BYTES = {"push-messages": 4 * 2**20, "push-object": MAX_OBJECT_BYTES}
MAX_OTHER_BODY_BYTES = 64 * 2**10
# Requests of one key that are served at a time; others wait. Flower's SuperNodes have up to three.
CONCURRENT = 4


class Gate:
    """Serve what an honest device would send; refuse the rest.

    Args:
        app: Flower's SuperLink.
        rules: Decides what is served.
        monitor: Counts what is served and refused.
        deliveries: Knows the devices for which there is nothing.
    """

    def __init__(
        self, app: ASGIApp, rules: GateRules, monitor: Monitor, deliveries: Deliveries
    ) -> None:
        self._app, self._rules, self._monitor = app, rules, monitor
        self._deliveries = deliveries
        # By key that the SuperLink has served: its node, and what bounds its requests. The lock is
        # for objects: what one costs depends on those of its reply that are stored already.
        self._known: dict[bytes, tuple[int, asyncio.Semaphore, asyncio.Lock]] = {}
        self._stranger = 0, asyncio.Semaphore(CONCURRENT), asyncio.Lock()
        self._large_of_strangers = asyncio.Semaphore(CONCURRENT)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] != "http" or not scope["path"].startswith(PREFIX):
            own = self._monitor.answer(scope["path"]) if scope["type"] == "http" else None
            await (own or self._app)(scope, receive, send)
            return
        name = scope["path"].removeprefix(PREFIX)
        headers = dict(reversed(scope["headers"]))  # the first of a name, which Flower reads
        length = int(headers.get(b"content-length", 0))
        most = MAX_BODY_BYTES.get(name, MAX_OTHER_BODY_BYTES)
        key, answer = signer(headers), list[Message]()
        is_known, large = key in self._known, length > MAX_OTHER_BODY_BYTES
        node_id, slots, storing = self._known.get(key, self._stranger)
        if length > most:
            async with slots:
                reason = f"{name} of {length} bytes, at most {most} are read"
                await self._refuse(413, reason, name, None, scope, send, node_id)
            return
        # A device that is slow holds its own slots; strangers share theirs, so these are held
        # neither while a request is read nor while its answer is sent.
        first = slots if is_known else self._large_of_strangers if large else nullcontext()
        async with first:
            body = await read_body(receive)
            if body is None:
                return
            second = nullcontext() if is_known else slots
            async with second, storing if name == "push-object" else nullcontext():
                served = await self._serve(name, body, scope, _append_to(answer), node_id)
            if served and key and key not in self._known:
                self._known[key] = served, asyncio.Semaphore(CONCURRENT), asyncio.Lock()
            # Only now, since the device may at once send what this allows.
            for message in answer:
                await send(message)

    async def _serve(self, name: str, body: bytes, scope: Scope, send: Send, node_id: int) -> int:
        """Answer a request; return the node whose signature the SuperLink has checked, 0 for none.

        Args:
            name: The request's.
            body: Its content.
            scope: The connection.
            send: Takes the answer.
            node_id: The node whose key signed it, whatever node it names; 0 for a stranger, whose
                refusals are not reported to the run.
        """
        request = None
        try:
            if name in REQUESTS:
                request = REQUESTS[name].FromString(body)
            self._check(request)
        except (RefusedError, DecodeError) as error:
            reason = f"{type(error).__name__}: {error}" if request is None else str(error)
            await self._refuse(403, reason, name, request, scope, send, node_id)
            return 0
        if isinstance(request, PullMessagesRequest):
            named = request.node.node_id
            if named == node_id and self._deliveries.has_nothing(node_id):
                self._monitor.asked(node_id, PullMessagesResponse())
                await EMPTY(scope, _nothing, send)
                return node_id
            posted = self._deliveries.times_posted(named)
        try:
            messages = await self._call(name, body, scope)
        except Exception:  # what Flower does not turn into an answer, such as a locked database
            self._monitor.failed_to_answer()
            raise
        status, answer = messages[0]["status"], content_of(messages)
        if status >= 500:
            self._monitor.failed_to_answer()
        elif status == 401:
            client = scope.get("client") or ("unknown", 0)
            self._monitor.unauthorised(f"node {node_id}" if node_id else client[0], name)
        elif status == 200:
            self._monitor.served(len(body), len(answer))
            if request is not None and (instead := self._note(request, answer)) is not None:
                messages = _with_content(messages, instead)
            if isinstance(request, PullMessagesRequest) and not answer:
                self._deliveries.found_nothing(named, posted)
        for message in messages:
            await send(message)
        if status != 200:
            return 0
        if name == "activate-node":
            return int(ActivateNodeResponse.FromString(answer).node_id)
        return int(request.node.node_id) if request is not None else 0

    def _check(self, request: Any) -> None:
        if isinstance(request, PushMessagesRequest):
            self._rules.check_reply(request)
        elif isinstance(request, PushObjectRequest):
            self._rules.check_object(request)
        elif isinstance(request, ConfirmMessageReceivedRequest):
            self._rules.check_confirmed(request)

    def _note(self, request: Any, answer: bytes) -> bytes | None:
        """Record what the SuperLink has served; it has checked the signature then.

        Returns:
            The answer to the device instead, if any.
        """
        node_id = request.node.node_id
        if isinstance(request, PullMessagesRequest):
            given = PullMessagesResponse.FromString(answer)
            self._rules.note_given(node_id, given)
            self._monitor.asked(node_id, given)
            if given.messages_list:
                self._deliveries.given(node_id)
        elif isinstance(request, ConfirmMessageReceivedRequest):
            self._deliveries.fetched(node_id)
        elif isinstance(request, PullObjectRequest):
            self._rules.note_fetched(request, len(answer))
        elif isinstance(request, PushMessagesRequest):
            opened = PushMessagesResponse.FromString(answer)
            changed = self._rules.note_announced(request, opened)
            self._monitor.replied(node_id)
            if changed is not opened:
                return bytes(changed.SerializeToString())
        elif isinstance(request, PushObjectRequest) and (
            PushObjectResponse.FromString(answer).stored
        ):
            self._rules.note_stored(request)
        return None

    async def _refuse(
        self, status: int, reason: str, name: str, request: Any, scope: Scope, send: Send,
        node_id: int,
    ) -> None:  # fmt: skip
        """Answer a request that is not served, and let the run know if it was for a reply.

        Args:
            status: The answer's.
            reason: Why it is not served.
            name: The request's.
            request: The request; None where it could not be read.
            scope: The connection.
            send: Takes the answer.
            node_id: The node whose key signed it; 0 for a stranger.
        """
        self._monitor.refused(node_id, name, reason)
        if node_id and name == "push-messages":
            replies = request.messages_list if request is not None else ()
            message_id = replies[0].metadata.reply_to_message_id if replies else ""
            await self._report(node_id, message_id, reason, scope)
        elif node_id and name == "push-object":
            await self._delete(node_id, request.session_id if request is not None else "", scope)
        await JSONResponse({"detail": f"refused: {reason}"}, status)(scope, _nothing, send)

    async def _report(self, node_id: int, message_id: str, reason: str, scope: Scope) -> None:
        """Reply to a message with an error, with the signature of the request that is refused."""
        message = self._rules.unanswered(node_id, message_id)
        if message is None:
            return
        announcement, content = error_reply(message, f"refused by the SuperLink's gate: {reason}")
        messages = await self._call("push-messages", announcement.SerializeToString(), scope)
        if messages[0]["status"] != 200:
            return
        answer = content_of(messages)
        self._note(announcement, answer)
        metadata = announcement.messages_list[0].metadata
        push = PushObjectRequest(
            node=announcement.node, run_id=metadata.run_id, object_id=metadata.message_id,
            object_content=content, session_id=PushMessagesResponse.FromString(answer).session_id,
        )  # fmt: skip
        await self._call("push-object", push.SerializeToString(), scope)
        self._rules.note_stored(push)

    async def _delete(self, node_id: int, session_id: str, scope: Scope) -> None:
        """Delete what has arrived of a reply, which Flower's grid reports."""
        run_id, message_id = self._rules.end_upload(node_id, session_id)
        if message_id:
            delete = ConfirmMessageReceivedRequest(
                node=Node(node_id=node_id), run_id=run_id, message_object_id=message_id
            )
            await self._call("confirm-message-received", delete.SerializeToString(), scope)

    async def _call(self, name: str, body: bytes, scope: Scope) -> list[Message]:
        """Return the messages with which the SuperLink answers."""
        path = PREFIX + name
        changed = {**scope, "path": path, "raw_path": path.encode()}
        return await answer_of(self._app, changed, body)


def _with_content(messages: list[Message], content: bytes) -> list[Message]:
    """Return the messages of an answer with another content."""
    start = dict(messages[0])
    headers = [pair for pair in start["headers"] if pair[0].lower() != b"content-length"]
    start["headers"] = [*headers, (b"content-length", b"%d" % len(content))]
    return [start, {"type": "http.response.body", "body": content}]


def _append_to(messages: list[Message]) -> Send:
    async def send(message: Message) -> None:
        messages.append(message)

    return send


async def _nothing() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}
