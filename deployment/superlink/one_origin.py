"""An ASGI middleware that lets one web page use the fleet API from browsers."""

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from deployment.superlink.fleet_only import FLEET_PATHS
from deployment.superlink.requests import PUBLIC_KEY, SIGNATURE, TIMESTAMP


class OneOrigin:
    """Answer a browser's preflights for the fleet API, and name the origin in its answers.

    Args:
        app: The ASGI app that answers everything else.
        origin: The page's, such as "https://example.org"; browsers keep all others out.
    """

    def __init__(self, app: ASGIApp, origin: str) -> None:
        headers = [name.decode() for name in (PUBLIC_KEY, SIGNATURE, TIMESTAMP)]
        self._app = app
        self._shared = CORSMiddleware(app, [origin], ["POST"], headers, max_age=7200)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer a preflight."""
        is_fleet = scope["type"] == "http" and scope["path"] in FLEET_PATHS
        await (self._shared if is_fleet else self._app)(scope, receive, send)
