"""The lines of docs/deployment.md, word for word, on a server and three devices of their own.

Their network has the addresses and the names of the document. Only the
device's number is replaced.
"""

import json
import shutil

import pytest

from tests.support.documents import ROOT, blocks, shell_lines
from tests.support.machines import Machine, working_tree
from tests.support.namespaces import Network
from tests.support.processes import until
from tests.support.run_folders import only_folder, read_history

TEXT = (ROOT / "docs" / "deployment.md").read_text()
DEVICES = 3
SERVER, OUTSIDER = 8, 20  # 192.0.2.10 and 192.0.2.22

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Network.allowed(), reason="needs the right to make network namespaces"),
]


def the_line(start, part=""):
    """Return the document's only line with this beginning and part."""
    (line,) = {x for x in shell_lines(TEXT) if x.startswith(start) and part in x}
    return line


@pytest.fixture
def network():
    hosts = "127.0.0.1 localhost\n192.0.2.10 superlink.example.org\n"
    with Network("192.0.2", hosts) as made:
        assert made.address_of(SERVER) == "192.0.2.10"
        yield made


@pytest.fixture
def server(network, tmp_path):
    with Machine(network, SERVER, tmp_path / "server") as machine:
        working_tree(machine.work)
        connection = next(content for language, content in blocks(TEXT) if language == "toml")
        (machine.home / ".flwr").mkdir()
        (machine.home / ".flwr" / "config.toml").write_text(
            connection.replace("/absolute/path/to", str(machine.work / "certificates"))
        )
        yield machine


@pytest.fixture
def devices(network, tmp_path):
    machines = [Machine(network, i, tmp_path / f"device-{i}") for i in range(DEVICES)]
    yield machines
    for machine in machines:
        machine.__exit__()


def listed(server, line, key):
    return json.loads(server.run(f"{line} --format json"))[key]


def test_commands_of_the_document_give_a_finished_run(network, server, devices, tmp_path):
    server.run(the_line("deployment/certificates.sh"))
    server.start(the_line("deployment/superlink.sh", "superlink.sh certificates"))
    health = the_line("curl", "--fail https://localhost:8000/health")
    assert until(lambda: succeeds(server, health), 90), server.logs()

    for number, device in enumerate(devices):
        (device.work / "deployment").symlink_to(ROOT / "deployment")
        (device.work / "certificates").mkdir()
        shutil.copy(server.work / "certificates" / "ca.crt", device.work / "certificates")
        mine = lambda line, n=number: line.replace("device-0", f"device-{n}")  # noqa: E731
        device.run(mine(the_line("ssh-keygen")))
        shutil.copy(device.work / f"device-{number}.pub", server.work)
        server.run(mine(the_line("flwr supernode register")))
        start = mine(the_line("deployment/supernode.sh", "num-partitions"))
        device.start(start.replace("partition-id=0", f"partition-id={number}"))

    def online():
        nodes = listed(server, "flwr supernode list deployment", "nodes")
        return [node["status"] for node in nodes] == ["online"] * DEVICES

    assert until(online, 120), [device.logs() for device in devices]
    printed = server.run(the_line("flwr run ."), 400)
    (run,) = listed(server, the_line("flwr ls"), "runs")
    assert run["status"] == "finished:completed", printed + server.logs()

    metrics = server.run(the_line("curl", "--fail https://localhost:8000/metrics"))
    assert f"fedavg_nodes_online {DEVICES}\n" in metrics
    assert f'fedavg_run{{run_id="{run["run-id"]}"}} 3\n' in metrics

    folder = only_folder(server.work / "runs")
    assert read_history(folder)[-1]["round"] == 3
    assert (folder / "model.safetensors").stat().st_size > 0

    with Machine(network, OUTSIDER, tmp_path / "outsider") as outsider:
        (outsider.work / "certificates").mkdir()
        shutil.copy(server.work / "certificates" / "ca.crt", outsider.work / "certificates")
        assert outsider.run(the_line("curl", "http_code")).strip() == "403"


def succeeds(machine, line):
    try:
        machine.run(line)
    except AssertionError:
        return False
    return True
