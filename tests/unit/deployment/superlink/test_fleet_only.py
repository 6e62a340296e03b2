"""Which requests reach the SuperLink: all from this machine, fleet calls from others."""

import asyncio
import json

import pytest
from fastapi.routing import APIRoute
from flwr.superlink.main import create_app
from flwr.superlink.routers.fleet.router import router as fleet_router

from deployment.superlink.fleet_only import FLEET_PATHS, FleetApiOnly
from tests.support.outsider import routes

OTHER_MACHINE = ("192.0.2.77", 40000)
THIS_MACHINE = ("127.0.0.1", 40000)
FLEET = "/v1/fleet/pull-messages"
CONTROL = "/v1/control/start-run"


def request(path=FLEET, client=OTHER_MACHINE, method="POST", headers=(), **changes):
    """Return the scope that uvicorn makes of a request with a body of ten bytes."""
    return {
        "type": "http", "method": method, "path": path, "raw_path": path.encode(), "root_path": "",
        "query_string": b"", "scheme": "https", "client": client, "server": ("192.0.2.10", 8000),
        "headers": [(b"host", b"superlink:8000"), (b"content-length", b"10"), *headers], **changes,
    }  # fmt: skip


def answer(scope):
    """Return "served", or the status and the text of the refusal."""
    sent, served = [], []

    async def app(scope, receive, send):
        served.append(scope)

    async def send(message):
        sent.append(message)

    async def receive():
        raise AssertionError("the body of a refused request is read")

    asyncio.run(FleetApiOnly(app)(scope, receive, send))
    if served:
        assert served == [scope]
        assert not sent
        return "served"
    if sent[0]["type"] == "http.response.start":
        return sent[0]["status"], b"".join(part["body"] for part in sent[1:]).decode()
    return sent[0]["type"], None


@pytest.mark.parametrize("path", sorted(FLEET_PATHS))
def test_fleet_call_of_another_machine_is_served(path):
    assert answer(request(path)) == "served"


def test_every_other_route_of_flower_is_refused_to_another_machine():
    refused = [route for route in routes(create_app()) if route[1] not in FLEET_PATHS]
    some = {("POST", CONTROL), ("POST", "/v1/runtime/acquire-task"), ("GET", "/docs")}
    assert some <= set(refused)
    for method, path in refused:
        assert answer(request(path, method=method))[0] == 403, (method, path)
        assert answer(request(path, THIS_MACHINE, method)) == "served", (method, path)


def test_list_of_fleet_paths_is_that_of_the_installed_flower():
    routes = [route.path for route in fleet_router.routes if isinstance(route, APIRoute)]
    assert set(routes) == set(FLEET_PATHS)


def test_refusal_is_one_line_that_says_what_to_do():
    status, body = answer(request(CONTROL))
    assert status == 403
    assert "ssh -L" in json.loads(body)["detail"]
    assert "\n" not in body


@pytest.mark.parametrize(
    "changes",
    [
        *({"path": path} for path in (
            "/v1/fleet/../control/start-run", "/v1/fleet/pull-messages/../../control/start-run",
            "//v1/fleet/pull-messages", "/v1//fleet/pull-messages", "/v1/fleet/pull-messages/",
            "/v1/fleet/pull-messages;/v1/control/start-run", "/v1/fleet/pull-messages#",
            "/V1/FLEET/PULL-MESSAGES", "\\v1\\fleet\\pull-messages", "/v1/fleet/", "/v1/fleet", "",
            "*", "https://superlink:8000/v1/fleet/pull-messages",
        )),
        *({"path": path, "raw_path": raw_path} for path, raw_path in (
            ("/v1/fleet/../control/start-run", b"/v1/fleet/%2e%2e/control/start-run"),
            ("/v1/fleet/../control/start-run", b"/v1/fleet/..%2fcontrol/start-run"),
            (FLEET, b"/v1/%66leet/pull-messages"), (FLEET, b"/v1/control/start-run"),
            (FLEET, b""), (FLEET, None),
            ("/v1/fleet/pull-messages?", b"/v1/fleet/pull-messages%3f"),
            ("/v1/fleet/pull-messages\0", b"/v1/fleet/pull-messages%00"),
            ("/v1/fleet/pull-messages\n", b"/v1/fleet/pull-messages%0a"),
        )),
        *({"method": method} for method in (
            "GET", "HEAD", "OPTIONS", "PUT", "PATCH", "CONNECT", "post",
        )),
        {"root_path": "/v1/fleet"},
        {"type": "webtransport"},
    ],
)  # fmt: skip
def test_request_that_only_resembles_a_fleet_call_is_refused(changes):
    assert answer(request(**changes))[0] == 403


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1"])
def test_loopback_may_use_everything(host):
    assert answer(request(CONTROL, (host, 1))) == "served"
    assert answer(request("/x", (host, 1), type="websocket")) == "served"


@pytest.mark.parametrize(
    "client",
    [None, (), ("", 0), ("localhost", 1), ("testclient", 1), ("192.0.2.10", 1), ("0.0.0.0", 1),
     ("::ffff:192.0.2.77", 1), ("::", 1), ("fe80::1%eth0", 1), ("127.0.0.1.evil", 1),
     ("/run/superlink.sock", None)],
)  # fmt: skip
def test_client_that_is_not_loopback_may_not_use_the_control_api(client):
    assert answer(request(CONTROL, client))[0] == 403
    assert answer(request(FLEET, client)) == "served"


@pytest.mark.parametrize("name", [b"x-forwarded-for", b"X-Real-IP", b"forwarded", b"via"])
def test_request_through_a_proxy_on_this_machine_is_not_local(name):
    assert answer(request(CONTROL, THIS_MACHINE, headers=[(name, b"127.0.0.1")]))[0] == 403
    assert answer(request(CONTROL, OTHER_MACHINE, headers=[(name, b"127.0.0.1")]))[0] == 403


def test_websocket_of_another_machine_is_refused_and_lifespan_is_passed_on():
    assert answer(request(type="websocket")) == ("websocket.close", None)
    assert answer({"type": "lifespan", "state": {}}) == "served"


@pytest.mark.parametrize(
    ("lengths", "others"),
    [([], []), ([b"-1"], []), ([b"1", b"2"], []), ([b"+5"], []),
     ([b"10"], [(b"transfer-encoding", b"chunked")])],
)  # fmt: skip
def test_fleet_call_with_a_body_of_unknown_length_is_refused_unread(lengths, others):
    headers = [(b"content-length", value) for value in lengths]
    assert answer(request() | {"headers": [*headers, *others]})[0] == 413


def test_fleet_call_with_a_long_body_is_left_to_the_gate():
    """It lets the run know of a reply that it refuses."""
    assert answer(request() | {"headers": [(b"content-length", b"%d" % 2**40)]}) == "served"
