"""A link that closes connections within their TLS handshake: the SuperNode ends, and says so."""

import os

import pytest

from tests.support.deployment import Deployment
from tests.support.processes import free_port
from tests.support.slow_link import SlowLink

pytestmark = pytest.mark.slow


def is_alive(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.timeout(400)
@pytest.mark.parametrize("options", [(), ("--isolation", "subprocess")], ids=["warm", "Flower's"])
def test_supernode_whose_handshake_fails_ends_so_that_its_service_starts_it_again(
    tmp_path, options
):
    port = free_port()
    deployment = Deployment(tmp_path / "deployment", 1, fleet_port=port)
    deployment.node_options += options
    with SlowLink(port, deployment.port) as link, deployment:
        link.is_cut = True
        process = deployment.processes["device-0"]
        assert process.wait(200) == 1
        deployment.wait_for(lambda: not is_alive(process.pid))
    assert (
        "the SuperNode cannot go on (its loop is over), and exits with status 1"
        in deployment.log("device-0")
    )
