"""Devices with warm clients: clients that hang, processes that end, and who is given a task.

test_short_runs.py shows that they train the model of the simulation.
"""

import json
import os
import re
import signal
from pathlib import Path

import httpx
import pytest
from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.runtime import RuntimeHttpClient

from tests.support.deployment import Deployment
from tests.support.documents import ROOT
from tests.support.faulty_task import FLAG
from tests.support.in_process import model_without
from tests.support.processes import parent, ran, session, until
from tests.support.run_folders import assert_model, read_history

pytestmark = pytest.mark.slow

NODES = 2
TIMEOUT = 40  # seconds of a round
KEYS = {"num-clients": NODES, "num-server-rounds": 3, "round-timeout": TIMEOUT}
FAULTY = {**KEYS, "task": "tests.support.faulty_task:TASK"}
FORK_SERVER = "multiprocessing.forkserver"


@pytest.fixture(scope="module")
def deployment(tmp_path_factory):
    folder = tmp_path_factory.mktemp("warm")
    found = Deployment(folder / "deployment", 0)
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    found.environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    with found:
        # Set now, the flag is seen by the devices and not by the server, which has the task, too.
        found.environment |= {FLAG: str(folder / "flag"), "SIGNS_OF_LIFE": str(folder / "signs")}
        for number in range(NODES):
            found.add_node(number)
        found.wait_for_devices(NODES)
        yield found


def taken(flag):
    """Return the processes that took the flag."""
    return [int(path.name.rpartition("-")[2]) for path in flag.parent.glob("taken-by-*")]


@pytest.mark.timeout(900)
@pytest.mark.long
@pytest.mark.parametrize("how", ["sleep", "compute"])
def test_client_that_hangs_is_ended_at_its_messages_expiry(deployment, tmp_path, how):
    """The second case is another run on the devices of the first."""
    flag = Path(deployment.environment[FLAG])
    for path in flag.parent.glob("taken-by-*"):
        path.unlink()
    flag.write_text(how)
    records = read_history(deployment.train(tmp_path, **FAULTY))
    (process,) = taken(flag)
    assert len(records[1]["rejected"]) == 1, records[1]
    assert not Path(f"/proc/{process}").exists()
    logs = "".join(deployment.log(f"device-{number}") for number in range(NODES))
    assert f"Ending process {process}: its message has expired" in logs
    # The round continued, and the device that was left out takes part again.
    assert len(records) == 4
    assert (records[3]["participants"], records[3]["rejected"]) == (NODES, {})


def test_client_that_is_killed_is_replied_for_at_once(deployment, tmp_path):
    flag = Path(deployment.environment[FLAG])
    flag.write_text("kill")
    records = read_history(deployment.train(tmp_path, **FAULTY))
    (reason,) = records[1]["rejected"].values()
    assert "the client's process was killed, crashed" in reason
    assert (records[3]["participants"], records[3]["rejected"]) == (NODES, {})


@pytest.mark.long
def test_reason_of_a_client_that_raises_has_the_file_and_the_line(deployment, tmp_path):
    Path(deployment.environment[FLAG]).write_text("raise")
    records = read_history(deployment.train(tmp_path, **FAULTY))
    (reason,) = records[1]["rejected"].values()
    place = r"\(\S+/tests/support/faulty_task\.py, line \d+\)"
    assert re.fullmatch(f"ValueError: this client's disk is broken {place}", reason), reason


def test_each_message_has_its_own_process_and_the_code_of_its_run(deployment, tmp_path):
    """What clients keep, under the language models' method, goes from process to process."""
    signs = Path(deployment.environment["SIGNS_OF_LIFE"])
    keys = {**KEYS, "strategy": "sparseloco", "local-steps": 5, "seed": 5}
    mods = {"client-mods": "tests.support.client_mods:signs_of_life"}
    folder = deployment.train(tmp_path / "devices", **keys, **mods)
    assert_model(folder, model_without([], tmp_path, **keys))
    found = [json.loads(line) for line in signs.read_text().splitlines()]
    assert len(found) == NODES * 3
    assert {sign["calls"] for sign in found} == {1}  # of each module that counts
    for key in ("process", "numbers"):
        assert len({str(sign[key]) for sign in found}) == len(found), key
    for sign in found:
        for file in (sign["app"], sign["strategy"]):
            assert Path(file).is_relative_to(deployment.folder), file
            assert "/apps/fedavg-app.fedavg-app." in file


def test_task_is_given_to_nobody_who_asks_for_it(deployment):
    addresses = []
    for number in range(NODES):
        log = deployment.log(f"device-{number}")
        (address,) = re.findall(r"running on http://(127\.0\.0\.1:\d+)", log)
        addresses.append(address)
        interceptors = [RuntimeVersionHttpInterceptor(component_name="SuperExec")]
        with RuntimeHttpClient.from_server_address(address, True, None, interceptors) as client:
            with pytest.raises(httpx.HTTPStatusError) as refused:
                client.AcquireTask(AcquireTaskRequest(supported_task_types=["flwr-clientapp"]))
            assert refused.value.response.status_code == 403
    assert len(set(addresses)) == NODES


@pytest.fixture
def hanging(deployment, tmp_path):
    """A device whose client computes in C for ever, and that client's process."""
    for path in Path(deployment.environment[FLAG]).parent.glob("taken-by-*"):
        path.unlink()
    Path(deployment.environment[FLAG]).write_text("compute")
    keys = {**FAULTY, "num-server-rounds": 1, "round-timeout": 400, "run-dir": str(tmp_path)}
    run = deployment.start_app(**keys)
    try:
        flag = Path(deployment.environment[FLAG])
        deployment.wait_for(lambda: taken(flag), 200)
        (process,) = taken(flag)
        name = next(
            f"device-{n}" for n in range(NODES)
            if process in session(deployment.processes[f"device-{n}"].pid)
        )  # fmt: skip
        yield name, process
    finally:
        run.kill()
        run.wait()
        listed = deployment.newest_run()
        words = ["flwr", "stop", str(listed["run-id"]), "deployment"]
        ran(words, cwd=deployment.folder, env=deployment.environment)


def restart(deployment, name):
    """Start a device again; after a kill it is refused until the server has missed it."""
    number = int(name.rpartition("-")[2])

    def accepted():
        if deployment.processes[name].poll() is not None:
            deployment.start_node(number, name)
        return "SuperNode ID: " in deployment.log(name)

    deployment.start_node(number, name)
    deployment.wait_for(accepted, 200)


def fork_server(device):
    """Return the process that a device forks its clients from."""
    servers = (pid for pid, command in session(device.pid).items() if FORK_SERVER in command)
    (found,) = (pid for pid in servers if parent(pid) == device.pid)
    return found


@pytest.mark.timeout(900)
@pytest.mark.parametrize("how", ["SIGTERM", pytest.param("SIGKILL", marks=pytest.mark.long)])
def test_processes_of_a_device_end_together(deployment, hanging, how):
    name, client = hanging
    device = deployment.processes[name]
    assert parent(client) == fork_server(device)
    if how == "SIGTERM":  # to all processes of the device, as by Ctrl-C or the stop of a service
        os.killpg(device.pid, signal.SIGTERM)
    else:
        os.kill(device.pid, signal.SIGKILL)
    status = device.wait(60)
    assert until(lambda: not session(device.pid), 30), session(device.pid)
    assert status == {"SIGTERM": 0, "SIGKILL": -9}[how]
    restart(deployment, name)


@pytest.mark.timeout(900)
@pytest.mark.long
def test_device_without_a_fork_server_replies_for_its_client_and_starts_another(
    deployment, hanging, tmp_path
):
    name, client = hanging
    device = deployment.processes[name]
    server = fork_server(device)
    os.kill(server, signal.SIGKILL)
    assert until(lambda: "Sent successfully" in deployment.log(name).rpartition("ROUND 1]")[2], 30)
    assert until(lambda: client not in session(device.pid), 30)
    deployment.train(tmp_path / "after", **KEYS)
    assert fork_server(device) != server


@pytest.mark.timeout(900)
@pytest.mark.long
def test_device_whose_client_is_killed_within_its_reply_ends_and_takes_part_again(
    deployment, tmp_path
):
    Path(deployment.environment[FLAG]).write_text("kill at the reply")
    run = deployment.start_app(**FAULTY, **{"run-dir": str(tmp_path)})
    devices = {f"device-{n}": deployment.processes[f"device-{n}"] for n in range(NODES)}
    deployment.wait_for(lambda: any(device.poll() == 1 for device in devices.values()), 200)
    (name,) = (name for name, device in devices.items() if device.poll() == 1)
    assert "a client ended while it handed in its reply" in deployment.log(name)
    restart(deployment, name)
    assert run.wait(300) == 0
