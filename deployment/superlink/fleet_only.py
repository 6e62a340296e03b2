"""An ASGI middleware that serves only Flower's fleet API to other machines.

Flower's SuperLink serves three APIs on one port. The fleet API, which SuperNodes use,
checks a signature. The control API (`flwr run`, `flwr supernode register`) and the runtime API
(which gives a run's app to the process that asks for it) check nothing. Here these two serve only
connections from this machine.
"""

from ipaddress import IPv6Address, ip_address

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

# Exactly these, not a prefix: what a later version of Flower adds is refused until it is listed.
FLEET_PATHS = frozenset(
    f"/v1/fleet/{name}"
    for name in (
        "register-node", "activate-node", "deactivate-node", "unregister-node",
        "send-node-heartbeat", "pull-messages", "push-messages", "get-run", "get-fab",
        "push-object", "pull-object", "confirm-message-received",
    )
)  # fmt: skip
# A proxy's headers. A request with one of them came through a proxy, whose clients may be anywhere.
_FORWARDED = frozenset({b"forwarded", b"via", b"x-forwarded-for", b"x-real-ip"})

_REFUSED = (
    "Other machines may use the fleet API only: run this command on the server itself, or through "
    "'ssh -L 8000:localhost:8000 SERVER', with the address localhost:8000."
)
_NO_LENGTH = "A request needs a Content-Length, by which the gate refuses what is too large."


class FleetApiOnly:
    """Serve everything to this machine, and to others only the fleet API; refuse the rest with 403.

    Args:
        app: The ASGI app that answers what is allowed.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer it with one line."""
        if scope["type"] == "lifespan" or _is_local(scope):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        elif not _is_fleet_request(scope):
            await JSONResponse({"detail": _REFUSED}, 403)(scope, receive, send)
        elif not _has_length(scope):
            await JSONResponse({"detail": _NO_LENGTH}, 413)(scope, receive, send)
        else:
            await self._app(scope, receive, send)


def _is_local(scope: Scope) -> bool:
    """Return whether the connection comes from this machine, and from no proxy on it."""
    client = scope.get("client")
    if not client or any(name.lower() in _FORWARDED for name, _ in scope["headers"]):
        return False
    try:
        address = ip_address(client[0])
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    return address.is_loopback


def _is_fleet_request(scope: Scope) -> bool:
    """Return whether it calls the fleet API, by the path as it was sent: nothing is decoded."""
    path: str = scope["path"]
    return (
        scope["type"] == "http"
        and scope["method"] == "POST"
        and path in FLEET_PATHS
        and scope.get("raw_path") == path.encode()
        and not scope.get("root_path")
    )


def _has_length(scope: Scope) -> bool:
    if any(name.lower() == b"transfer-encoding" for name, _ in scope["headers"]):
        return False  # a server that takes it beside a length reads on beyond that
    lengths = [value for name, value in scope["headers"] if name.lower() == b"content-length"]
    return len(lengths) == 1 and lengths[0].isdigit()
