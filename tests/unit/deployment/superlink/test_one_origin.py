"""Browsers may use the fleet API from the one page that the operator names."""

import asyncio

import httpx
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from deployment.superlink.fleet_only import FleetApiOnly
from deployment.superlink.one_origin import one_origin

PAGE = "https://page.example.org"
FLEET, CONTROL = "/v1/fleet/pull-messages", "/v1/control/start-run"
OTHERS = [
    "https://evil.example.org", "http://page.example.org", "https://page.example.org:8443",
    "https://page.example.org.evil.org", "null", "",
]  # fmt: skip
SENT = "content-type,flwr-public-key,flwr-signature,flwr-timestamp"


@pytest.fixture(params=["192.0.2.7", "127.0.0.1"])
def ask(request):
    """Return a function that returns the answer to a request from that address."""

    def told(_):
        return PlainTextResponse("told")

    routes = [Route(path, told, methods=["POST"]) for path in (FLEET, CONTROL)]
    middleware = [Middleware(one_origin, origin=PAGE), Middleware(FleetApiOnly)]
    app = Starlette(routes=routes, middleware=middleware)
    transport = httpx.ASGITransport(app, client=(request.param, 40000))

    async def answer(method, path, headers):
        async with httpx.AsyncClient(transport=transport, base_url="https://superlink") as client:
            return await client.request(method, path, headers=headers, content=b"x")

    return lambda method, path, headers: asyncio.run(answer(method, path, headers))


def preflight(ask, path=FLEET, origin=PAGE, method="POST", headers=SENT):
    asked = {"access-control-request-method": method, "access-control-request-headers": headers}
    return ask("OPTIONS", path, {"origin": origin, **asked})


def test_the_page_may_send_what_a_device_sends(ask):
    answer = preflight(ask)
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == PAGE
    assert "access-control-allow-credentials" not in answer.headers
    answer = ask("POST", FLEET, {"origin": PAGE})
    assert (answer.text, answer.headers["access-control-allow-origin"]) == ("told", PAGE)


@pytest.mark.parametrize(
    "changes",
    [
        *({"origin": origin} for origin in OTHERS),
        {"method": "DELETE"},
        {"headers": "authorization"},
        {"path": CONTROL},
        {"path": f"{FLEET}/"},
    ],
)
def test_no_other_preflight_is_granted(ask, changes):
    assert preflight(ask, **changes).status_code >= 300


@pytest.mark.parametrize("path", [FLEET, CONTROL])
@pytest.mark.parametrize("origin", OTHERS)
def test_no_other_page_can_read_an_answer(ask, path, origin):
    answer = ask("POST", path, {"origin": origin})
    assert "access-control-allow-origin" not in answer.headers


def test_the_page_cannot_read_answers_of_the_control_api(ask):
    answer = ask("POST", CONTROL, {"origin": PAGE})
    assert "access-control-allow-origin" not in answer.headers


def test_a_device_without_a_browser_sees_no_difference(ask):
    answer = ask("POST", FLEET, {})
    assert answer.text == "told"
    assert not [name for name in answer.headers if name.startswith("access-control")]
