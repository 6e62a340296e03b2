"""An ASGI middleware that lets one web page use the fleet API from browsers."""

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from deployment.superlink.fleet_only import FLEET_PATHS
from deployment.superlink.requests import PUBLIC_KEY, SIGNATURE, TIMESTAMP


def one_origin(app: ASGIApp, origin: str) -> ASGIApp:
    """Return an app that answers browsers' preflights for the fleet API, and passes on the rest.

    Args:
        app: The ASGI app that answers everything else.
        origin: The page's, such as "https://example.org"; browsers keep all others out.
    """
    headers = [name.decode() for name in (PUBLIC_KEY, SIGNATURE, TIMESTAMP)]
    shared = CORSMiddleware(app, [origin], ["POST"], headers, max_age=7200)

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        is_fleet = scope["type"] == "http" and scope["path"] in FLEET_PATHS
        await (shared if is_fleet else app)(scope, receive, send)

    return answer
