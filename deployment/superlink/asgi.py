"""Requests and answers of an ASGI app as whole values."""

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope

# An answer without content, which is a protobuf message of any type with no field set.
EMPTY = Response(media_type="application/protobuf")


async def read_body(receive: Receive) -> bytes | None:
    """Return a request's body; None where the connection was closed before its end."""
    parts, more = [], True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(parts)


async def answer_of(app: ASGIApp, scope: Scope, body: bytes) -> list[Message]:
    """Return the messages with which an app answers a request of that body."""
    messages: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        messages.append(message)

    headers = [pair for pair in scope["headers"] if pair[0] != b"content-length"]
    headers.append((b"content-length", b"%d" % len(body)))
    await app({**scope, "headers": headers}, receive, send)
    return messages


def content_of(messages: list[Message]) -> bytes:
    """Return the content of an answer."""
    return b"".join(message.get("body", b"") for message in messages)
