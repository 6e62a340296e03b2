"""deployment/nginx.conf before Flower's own SuperLink: devices pass, all others are refused."""

import json
import shutil

import pytest
from flwr.superlink.main import create_app

from deployment.superlink.fleet_only import FLEET_PATHS
from tests.support.documents import ROOT
from tests.support.machines import Machine, working_tree
from tests.support.namespaces import Network
from tests.support.outsider import ask, routes
from tests.support.processes import until

SERVER, DEVICE, OUTSIDER = 8, 0, 20
ADDRESS = "192.0.2.10"
# Without the filter that deployment/superlink.sh has built in, so that only nginx's counts.
STOCK = (
    "flower-superlink --ssl-ca-certfile certificates/ca.crt --ssl-certfile certificates/server.pem "
    "--ssl-keyfile certificates/server.key --enable-supernode-auth --host 127.0.0.1 --port 8001 "
    "--disable-runtime-dependency-installation"
)
NGINX = 'nginx -e stderr -p "$PWD/" -c deployment/nginx.conf'
KEYS = (
    "num-clients=1 fraction-train=1.0 num-server-rounds=1 task='mnist-logistic' "
    "data-source='embedded'"
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Network.allowed(), reason="needs the right to make network namespaces"),
    pytest.mark.skipif(not shutil.which("nginx"), reason="needs nginx"),
]


@pytest.fixture
def network():
    with Network("192.0.2", "127.0.0.1 localhost\n") as made:
        yield made


@pytest.fixture
def server(network, tmp_path):
    with Machine(network, SERVER, tmp_path / "server") as machine:
        working_tree(machine.work)
        machine.run(f"deployment/certificates.sh certificates {ADDRESS}")
        machine.start(STOCK)
        machine.start(NGINX)
        (machine.home / ".flwr").mkdir()
        (machine.home / ".flwr" / "config.toml").write_text(
            '[superlink.deployment]\naddress = "localhost:8001"\n'
            f'root-certificates = "{machine.work}/certificates/ca.crt"\n'
        )
        yield machine


def test_nginx_passes_devices_and_refuses_everyone_else(network, server, tmp_path):
    assert NGINX in (ROOT / "deployment" / "nginx.conf").read_text()
    authority = server.work / "certificates" / "ca.crt"

    def outsider(*requests):
        return ask(network.inside(OUTSIDER), ADDRESS, 8000, authority, requests)

    def serving():
        try:
            return outsider({"path": "/v1/fleet/pull-object"})[0][0] == 401
        except AssertionError:
            return False

    assert until(serving, 90), server.logs()
    with Machine(network, DEVICE, tmp_path / "device") as device:
        device.run('ssh-keygen -q -t ecdsa -b 384 -N "" -C "" -f key')
        server.run(f"flwr supernode register {device.work}/key.pub deployment")
        shutil.copy(authority, device.work)
        device.start(f"{ROOT}/deployment/supernode.sh {ADDRESS}:8000 ca.crt key partition-id=0")
        printed = server.run(f'flwr run . deployment --stream -c "{KEYS}"', 300)
    (run,) = json.loads(server.run("flwr ls deployment --format json"))["runs"]
    assert run["status"] == "finished:completed", printed + server.logs()

    known = routes(create_app())
    answers = outsider(*({"method": method, "path": path} for method, path in known))
    for (method, path), (status, _) in zip(known, answers, strict=True):
        assert status == (401 if path in FLEET_PATHS else 403), (method, path)
    disguised = [
        "/v1/fleet/../control/list-runs", "/v1/fleet/%2e%2e/control/list-runs",
        "/v1/fleet/..%2fcontrol/list-runs", "//v1/control/list-runs", "/v1/control/list-runs/",
        "/v1/%63ontrol/list-runs", "/V1/FLEET/pull-object", "/v1/fleet/pull-object/",
        "/v1/control/list-runs?/v1/fleet/pull-object", "/v1/fleet/pull-object?",
        "https://localhost:8000/v1/control/list-runs",
        "https://localhost/v1/fleet/pull-object/../../control/list-runs",
    ]  # fmt: skip
    answers = outsider(*({"path": path} for path in disguised))
    for path, (status, _) in zip(disguised, answers, strict=True):
        assert status == 403, path
    host = {"Host": "localhost/v1/runtime/pull-object?", "X-Forwarded-For": "127.0.0.1"}
    long = {"Content-Length": 10**12}
    bad_host, too_long = outsider(
        {"path": "/v1/fleet/pull-object", "headers": host},
        {"path": "/v1/fleet/pull-object", "headers": long},
    )
    assert bad_host[0] in (400, 401)
    assert too_long[0] == 413
