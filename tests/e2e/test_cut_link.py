"""A link that closes connections within their TLS handshake, and a certificate that expires.

The SuperNode ends and says so, and is accepted when its service starts it again.
"""

import datetime
import os

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from tests.support.deployment import Deployment
from tests.support.processes import end, free_port
from tests.support.slow_link import SlowLink

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
LOOP_OVER = "the SuperNode cannot go on (its loop is over), and exits with status 1"
NOT_CONNECTED = "Failed to initialize the connection to the SuperLink"
FLOWERS = ("--isolation", "subprocess")


def is_alive(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def start_as_a_service(deployment):
    """Start the device as `Restart=always` does: again whenever it ends, until it is accepted."""

    def accepted():
        if deployment.processes["device-0"].poll() is not None:
            deployment.start_node(0, "device-0")
        return "SuperNode ID" in deployment.log("device-0")

    deployment.wait_for(accepted, 150)


@pytest.mark.parametrize(
    "options", [(), pytest.param(FLOWERS, marks=pytest.mark.long)], ids=["warm", "Flower's"]
)
@pytest.mark.parametrize(
    "moments",
    [pytest.param(["start"], marks=pytest.mark.long), ["wait", "train"]],
    ids=["start", "wait and train"],
)
def test_supernode_whose_handshakes_fail_ends_and_takes_part_again(tmp_path, options, moments):
    port = free_port()
    deployment = Deployment(tmp_path / "deployment", 1, fleet_port=port)
    deployment.node_options += options
    with SlowLink(port, deployment.port) as link, deployment:
        keys = {
            "num-clients": 1, "num-server-rounds": 2, "round-timeout": 90, "node-timeout": 200,
            "run-dir": str(tmp_path / "runs"),
        }  # fmt: skip
        run = None
        for moment in moments:
            if moment == "start":
                deployment.stop_node("device-0")
                link.is_cut = True
                deployment.start_node(0, "device-0")
            if moment == "train":
                run = deployment.start_app(**keys)
                deployment.wait_for(lambda: "Receiving: train" in deployment.log("device-0"))
            link.is_cut = True
            process = deployment.processes["device-0"]
            assert process.wait(200) == 1
            deployment.wait_for(lambda: not is_alive(deployment.processes["device-0"].pid))
            expected = NOT_CONNECTED if moment == "start" else LOOP_OVER
            assert expected in deployment.log("device-0")

            link.is_cut = False
            start_as_a_service(deployment)
        run = run or deployment.start_app(**keys)
        assert run.wait(300) == 0
        status = deployment.newest_run()["status"]
        assert status == "finished:completed", deployment.log("flwr-run")


@pytest.mark.long
def test_supernode_ends_after_the_certificate_expired_and_returns_after_its_renewal(tmp_path):
    with Deployment(tmp_path / "deployment", 1) as deployment:
        expires = let_expire(deployment.folder / "certificates", 60)
        restart_superlink(deployment)
        process = deployment.processes["device-0"]
        deployment.wait_for(lambda: "Connection successful" in deployment.log("device-0"))
        deployment.wait_for(lambda: datetime.datetime.now(datetime.UTC) > expires)
        assert process.poll() is None  # an open connection is not asked for its certificate again
        restart_superlink(deployment)
        assert process.wait(200) == 1
        assert LOOP_OVER in deployment.log("device-0")

        deployment.run(deployment.command("deployment/certificates.sh"))
        restart_superlink(deployment)
        start_as_a_service(deployment)
        deployment.train(tmp_path / "runs", **{"num-clients": 1})


def restart_superlink(deployment):
    end([deployment.processes["superlink"]])
    deployment.start_superlink()


def let_expire(folder, seconds):
    """Have the authority sign the server's certificate again, for that time; return its end."""
    old = x509.load_pem_x509_certificate((folder / "server.pem").read_bytes())
    authority = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes())
    key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(old.subject)
        .issuer_name(authority.subject)
        .public_key(old.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=1))
        .not_valid_after(now + datetime.timedelta(seconds=seconds))
    )
    for extension in old.extensions:
        builder = builder.add_extension(extension.value, extension.critical)
    new = builder.sign(key, hashes.SHA256())
    (folder / "server.pem").write_bytes(new.public_bytes(serialization.Encoding.PEM))
    return new.not_valid_after_utc
