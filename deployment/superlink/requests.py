"""Requests of devices and the SuperLink's answers, each as a whole; and who signed a request."""

from base64 import b64decode
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from flwr.common.constant import SYSTEM_TIME_TOLERANCE, TIMESTAMP_HEADER, TIMESTAMP_TOLERANCE
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
from flwr.supercore.primitives.asymmetric import bytes_to_public_key, verify_signature
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope

FLEET = "/v1/fleet/"
_public_key = lru_cache(maxsize=4096)(bytes_to_public_key)
PUBLIC_KEY, SIGNATURE, TIMESTAMP = (
    name.lower().encode()
    for name in (FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER, TIMESTAMP_HEADER)
)


def signer(headers: Mapping[bytes, bytes]) -> bytes:
    """Return the public key whose owner signed the request's time; empty where nobody did.

    A device keeps its private key, but its public key goes from hand to hand, so that the header
    alone proves nothing. The key is decoded, since base64 has several spellings of the same bytes.
    A time that the SuperLink would refuse counts as not signed.

    Args:
        headers: The request's, by name in lower case.
    """
    try:
        key = b64decode(headers[PUBLIC_KEY], validate=True)
        signature = b64decode(headers[SIGNATURE], validate=True)
        time = headers[TIMESTAMP]
        age = (datetime.now(UTC) - datetime.fromisoformat(time.decode())).total_seconds()
        is_now = -SYSTEM_TIME_TOLERANCE < age < TIMESTAMP_TOLERANCE + SYSTEM_TIME_TOLERANCE
        is_signed = is_now and verify_signature(_public_key(key), time, signature)
    except Exception:  # whatever the decoders raise for a stranger's bytes
        return b""
    return key if is_signed else b""


async def read_body(scope: Scope, receive: Receive) -> bytes | None:
    """Return a request's body; None where the connection was closed before its end."""
    try:
        return await Request(scope, receive).body()
    except ClientDisconnect:
        return None


def protobuf(content: bytes = b"") -> Response:
    """Return an answer; without content it is a protobuf message of any type, with no field set."""
    return Response(content, media_type="application/protobuf")


async def answer_of(app: ASGIApp, scope: Scope, body: bytes) -> Response:
    """Return an app's answer to a request of that body."""
    messages: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        messages.append(message)

    headers = [pair for pair in scope["headers"] if pair[0] != b"content-length"]
    headers.append((b"content-length", b"%d" % len(body)))
    # Requests of one connection may be answered at the same time: Flower writes to the state.
    changed = {"headers": headers, "state": {**scope.get("state", {})}}
    await app({**scope, **changed}, receive, send)
    content = b"".join(message.get("body", b"") for message in messages)
    response = Response(content, messages[0]["status"])
    response.raw_headers = list(messages[0]["headers"])
    return response


async def call(app: ASGIApp, name: str, request: Any, scope: Scope) -> bytes:
    """Return what the SuperLink answers to a protobuf request, in the name of who sent that scope.

    Raises:
        HTTPException: It refuses the request.
    """
    path = FLEET + name
    changed = {**scope, "path": path, "raw_path": path.encode()}
    answer = await answer_of(app, changed, request.SerializeToString())
    if answer.status_code != 200:
        raise HTTPException(answer.status_code, "the SuperLink stores nothing")
    return bytes(answer.body)
