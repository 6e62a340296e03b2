"""Another machine, which has only the authority's certificate, tries to use a SuperLink."""

import base64
import datetime
import json
import shutil
import subprocess

import pytest
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.proto.fleet_pb2 import PullMessagesRequest
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore.primitives.asymmetric import public_key_to_bytes, sign_message

from tests.support.deployment import Deployment
from tests.support.documents import ROOT
from tests.support.namespaces import Network
from tests.support.outsider import ask
from tests.support.processes import ran, until

OUTSIDER = 40  # its number in the network; the devices' numbers are below
FLEET, CONTROL = "/v1/fleet/pull-object", "/v1/control/list-runs"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Network.allowed(), reason="needs the right to make network namespaces"),
]


@pytest.fixture(scope="module")
def deployment(tmp_path_factory):
    folder = tmp_path_factory.mktemp("deployment")
    with Network() as network, Deployment(folder, 1, network=network) as started:
        yield started


@pytest.fixture
def outsider(deployment, tmp_path):
    """A function that sends requests from a machine that has only ca.crt."""
    authority = shutil.copy(deployment.folder / "certificates" / "ca.crt", tmp_path)
    words = deployment.network.inside(OUTSIDER)
    return lambda *requests: ask(words, deployment.host, deployment.port, authority, requests)


def signed(key, seconds=0.0):
    """Return the headers of a SuperNode whose clock is wrong by this many seconds."""
    clock = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)
    timestamp = clock.isoformat()
    encode = lambda data: base64.b64encode(data).decode()  # noqa: E731
    return {
        "flwr-public-key": encode(public_key_to_bytes(key.public_key())),
        "flwr-timestamp": timestamp,
        "flwr-signature": encode(sign_message(key, timestamp.encode())),
    }


def private_key(deployment, name):
    return load_ssh_private_key((deployment.folder / name).read_bytes(), None)


def node_ids(deployment):
    listed = deployment.run(["flwr", "supernode", "list", "deployment", "--format", "json"]).stdout
    return [int(node["node-id"]) for node in json.loads(listed)["nodes"]]


def online(deployment):
    return [int(node) for node in deployment.online_nodes()]


def heartbeat(key, node_id, seconds=0.0):
    """Return the request with which a SuperNode says that it is there."""
    body = SendNodeHeartbeatRequest(node=Node(node_id=node_id), heartbeat_interval=30)
    return {
        "path": "/v1/fleet/send-node-heartbeat",
        "headers": signed(key, seconds),
        "body": body.SerializeToString(),
    }


@pytest.mark.parametrize("reason", ["unregistered key", "other authority"])
def test_supernode_with_unregistered_key_or_other_authority_is_refused(deployment, reason):
    key = reason.replace(" ", "-")
    deployment.run(["ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-f", key])
    authority = None
    if reason == "other authority":
        deployment.run(["deployment/certificates.sh", "other", "localhost"])
        deployment.run(["flwr", "supernode", "register", f"{key}.pub", "deployment"])
        authority = "other/ca.crt"
    process = deployment.start_node(9, key, authority=authority, options=["--max-retries", "1"])
    assert process.wait(60) == 1
    assert deployment.online() == 1


def test_plain_and_disguised_requests_are_refused(outsider):
    """As test_fleet_only.py has them and more, here over TLS."""
    local = {"X-Forwarded-For": "127.0.0.1", "X-Real-IP": "127.0.0.1", "Forwarded": "for=127.0.0.1"}
    upgrade = {
        "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Content-Length": None,
    }  # fmt: skip
    attempts = [
        ({"path": "/v1/runtime/acquire-task"}, 403),
        ({"path": "/v1/control/stop-run"}, 403),
        ({"path": CONTROL, "headers": local}, 403),
        ({"path": "/v1/fleet/..%2fcontrol%2flist-runs"}, 403),
        ({"path": f"https://localhost:8000{CONTROL}"}, 403),
        ({"path": CONTROL, "headers": upgrade, "method": "GET"}, 403),
        # Taken for a call of the runtime API, this would need no signature.
        ({"path": FLEET, "headers": {"Host": "localhost/v1/runtime/pull-object?"}}, 401),
        ({"path": FLEET, "headers": {"Content-Length": 10**12}}, 413),
        ({"path": FLEET, "headers": {"Content-Length": None, "Transfer-Encoding": "chunked"}}, 413),
    ]
    answers = outsider(*(attempt for attempt, _ in attempts))
    for (attempt, expected), (status, _) in zip(attempts, answers, strict=True):
        assert status == expected, attempt


def test_flwr_on_another_machine_says_where_it_works(deployment, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    authority = shutil.copy(deployment.folder / "certificates" / "ca.crt", tmp_path)
    (home / "config.toml").write_text(
        f'[superlink.deployment]\naddress = "{deployment.host}:{deployment.port}"\n'
        f'root-certificates = "{authority}"\n'
    )
    for words in (
        deployment.command("flwr ls"),
        deployment.app_command(),
    ):
        words = [*deployment.network.inside(OUTSIDER), *words]
        done = ran(words, cwd=ROOT, env={**deployment.environment, "FLWR_HOME": str(home)})
        assert done.returncode != 0
        assert "ssh -L" in " ".join((done.stdout + done.stderr).split()), done.stdout + done.stderr
    listed = json.loads(deployment.run([*deployment.command("flwr ls"), "--format", "json"]).stdout)
    assert listed["runs"] == []
    assert deployment.online() == 1


def test_clock_that_is_wrong_by_seconds_is_tolerated_and_by_more_is_refused(deployment, outsider):
    key, (node_id,) = private_key(deployment, "device-0"), online(deployment)
    for seconds, expected in ((2, 200), (10, 401), (-290, 200), (-310, 401)):
        ((status, _),) = outsider(heartbeat(key, node_id, seconds))
        assert status == expected, seconds


def test_signature_covers_the_time_and_the_node_of_the_key_but_not_the_request(
    deployment, outsider
):
    key, (node_id,) = private_key(deployment, "device-0"), online(deployment)
    recorded = heartbeat(key, node_id)
    mine, other = Node(node_id=node_id), Node(node_id=node_id + 1)
    answers = outsider(
        recorded,
        *(
            {**recorded, "path": "/v1/fleet/pull-messages", "body": body.SerializeToString()}
            for body in (PullMessagesRequest(node=mine), PullMessagesRequest(node=other))
        ),
    )
    assert [status for status, _ in answers] == [200, 200, 401]


def test_unregistered_device_ends_and_its_key_cannot_return(deployment, outsider):
    (first,) = online(deployment)
    process = deployment.add_node(1)
    deployment.wait_for_devices(2)
    (node_id,) = {*online(deployment)} - {first}
    key = private_key(deployment, "device-1")
    assert outsider(heartbeat(key, node_id))[0][0] == 200
    words = deployment.command("flwr supernode unregister")
    deployment.run([str(node_id) if word == "NODE-ID" else word for word in words])
    assert outsider(heartbeat(key, node_id))[0][0] == 401
    assert until(lambda: process.poll() is not None, 120)  # at its next heartbeat
    assert deployment.start_node(1, "device-1").wait(60) == 1
    words = deployment.command("flwr supernode register")
    with pytest.raises(subprocess.CalledProcessError):
        deployment.run([word.replace("device-0", "device-1") for word in words])
    assert deployment.online() == 1
