"""Gives the SuperLink what a run waits for: a device's reply, or an error in its place.

Both are sent as the device would send them, with the signature of its last request.
"""

import asyncio
from typing import Any

from flwr.proto.fleet_pb2 import PushMessagesRequest, PushMessagesResponse
from flwr.proto.message_pb2 import PushObjectRequest, PushObjectResponse
from starlette.types import ASGIApp, Scope

from deployment.superlink.internals import error_reply
from deployment.superlink.replies import Given
from deployment.superlink.requests import call


class NotStoredError(Exception):
    """The SuperLink did not take something, and why."""


async def hand_over(app: ASGIApp, given: Given) -> None:
    """Give the SuperLink a reply that has come.

    Raises:
        NotStoredError: It does not take it.
    """
    upload = given.upload
    assert upload is not None
    opened = await _announce(app, upload.announcement, given.scope)
    for object_id in opened.objects_to_push:
        content = await asyncio.to_thread(upload.content, object_id)
        await _push(app, given, opened, object_id, content, given.scope)
    given.end()


async def report_error(app: ASGIApp, given: Given, reason: str, scope: Scope) -> None:
    """Give the SuperLink an error as the reply to a message, and receive nothing more of another.

    Args:
        app: The SuperLink.
        given: The message.
        reason: The reason, for the run's history.
        scope: A request that the message's device has signed.

    Raises:
        NotStoredError: The SuperLink does not take it, for example because the run is over.
    """
    given.end()
    error, content = error_reply(given.message, f"refused by the SuperLink's gate: {reason}")
    opened = await _announce(app, error, scope)
    await _push(app, given, opened, error.messages_list[0].metadata.message_id, content, scope)


async def _announce(
    app: ASGIApp, announcement: PushMessagesRequest, scope: Scope
) -> PushMessagesResponse:
    answer = await call(app, "push-messages", announcement, scope)
    if answer.status_code != 200:
        raise NotStoredError(f"the SuperLink answers {answer.status_code}")
    return PushMessagesResponse.FromString(bytes(answer.body))


async def _push(
    app: ASGIApp, given: Given, opened: Any, object_id: str, content: bytes, scope: Scope
) -> None:
    push = PushObjectRequest(
        node={"node_id": given.node_id}, run_id=given.run_id, object_id=object_id,
        object_content=content, session_id=opened.session_id,
    )  # fmt: skip
    answer = await call(app, "push-object", push, scope)
    is_served = answer.status_code == 200
    if not is_served or not PushObjectResponse.FromString(bytes(answer.body)).stored:
        raise NotStoredError(f"the SuperLink answers {answer.status_code} and stores nothing")
