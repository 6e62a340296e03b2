"""Gives the SuperLink what a run waits for: a device's reply, or an error in its place.

Both are sent as the device would send them, with the signature of its last request.
"""

import asyncio
import logging
from collections.abc import Callable

from flwr.proto.fleet_pb2 import PushMessagesRequest, PushMessagesResponse
from flwr.proto.message_pb2 import PushObjectRequest, PushObjectResponse
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Scope

from deployment.superlink.internals import error_reply
from deployment.superlink.reply_limits import DeliveredMessage
from deployment.superlink.requests import call

_log = logging.getLogger("flwr")


async def report_error(app: ASGIApp, given: DeliveredMessage, reason: str, scope: Scope) -> None:
    """Give the SuperLink an error as the reply to a message, and receive nothing more of another.

    A line is logged where the SuperLink does not take it, for example because the run is over.

    Args:
        app: The SuperLink.
        given: The message.
        reason: The reason, for the run's history.
        scope: A request that the message's device has signed.
    """
    given.end()
    error, content = error_reply(given.message, f"refused by the SuperLink's gate: {reason}")
    try:
        await hand_over(app, scope, error, lambda _: content)
    except HTTPException as failure:
        _log.warning("could not report an error of node %d: %s", given.node_id, failure)


async def hand_over(
    app: ASGIApp, scope: Scope, announcement: PushMessagesRequest, content: Callable[[str], bytes]
) -> None:
    """Announce a reply, and send those of its objects that the SuperLink has not.

    Raises:
        HTTPException: The SuperLink does not take it.
    """
    opened = PushMessagesResponse.FromString(await call(app, "push-messages", announcement, scope))
    metadata = announcement.messages_list[0].metadata
    # Where it wants none, it has the message itself from an earlier announcement.
    for name in opened.objects_to_push or [metadata.message_id]:
        push = PushObjectRequest(
            node=announcement.node, run_id=metadata.run_id, session_id=opened.session_id,
            object_id=name, object_content=await asyncio.to_thread(content, name),
        )  # fmt: skip
        if not PushObjectResponse.FromString(await call(app, "push-object", push, scope)).stored:
            raise HTTPException(507, "the SuperLink has not stored an object")
