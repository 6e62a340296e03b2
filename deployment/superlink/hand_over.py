"""Gives the SuperLink what a run waits for: a device's reply, or an error in its place.

Both are sent as the device would send them, with the signature of its last request.
"""

import asyncio
from collections.abc import Callable, Iterable

from flwr.proto.fleet_pb2 import PushMessagesRequest, PushMessagesResponse
from flwr.proto.message_pb2 import PushObjectRequest, PushObjectResponse
from starlette.types import ASGIApp, Scope

from deployment.superlink.internals import error_reply
from deployment.superlink.replies import DeliveredMessage
from deployment.superlink.requests import call


class NotStoredError(Exception):
    """The SuperLink did not take something.

    Args:
        status: The status of its answer.

    Attributes:
        is_failure: Whether that is no refusal: its database is locked, or the disk full.
    """

    def __init__(self, status: int) -> None:
        super().__init__(f"the SuperLink stores nothing (status {status})")
        self.is_failure = not 400 <= status < 500


async def hand_over(app: ASGIApp, given: DeliveredMessage) -> None:
    """Give the SuperLink a reply that has come.

    Raises:
        NotStoredError: It does not take it.
    """
    upload = given.upload
    assert upload is not None
    await _send(app, given.scope, upload.announcement, upload.content)
    given.end(has_arrived=True)


async def report_error(app: ASGIApp, given: DeliveredMessage, reason: str, scope: Scope) -> None:
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
    await _send(app, scope, error, lambda _: content, [error.messages_list[0].metadata.message_id])


async def _send(
    app: ASGIApp, scope: Scope, announcement: PushMessagesRequest,
    content: Callable[[str], bytes], names: Iterable[str] | None = None,
) -> None:  # fmt: skip
    """Announce a reply; send these of its objects, by default those that the SuperLink has not."""
    answer = await call(app, "push-messages", announcement, scope)
    if answer.status_code != 200:
        raise NotStoredError(answer.status_code)
    opened = PushMessagesResponse.FromString(bytes(answer.body))
    for name in opened.objects_to_push if names is None else names:
        push = PushObjectRequest(
            node=announcement.node, run_id=announcement.messages_list[0].metadata.run_id,
            object_id=name, object_content=await asyncio.to_thread(content, name),
            session_id=opened.session_id,
        )  # fmt: skip
        answer = await call(app, "push-object", push, scope)
        served = answer.status_code == 200
        if not served or not PushObjectResponse.FromString(bytes(answer.body)).stored:
            raise NotStoredError(answer.status_code)
