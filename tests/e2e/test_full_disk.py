"""A SuperLink or a device whose disk is full: it says so, and goes on once there is space again."""

import os
import re
import shutil
import ssl
import subprocess
import urllib.error
import urllib.request
from contextlib import suppress

import pytest

from tests.support.deployment import Deployment

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs the right to mount a small disk"),
]


@pytest.fixture
def small_disk():
    """A function that mounts a disk of so many MiB at a folder."""
    mounted = []

    def mount(folder, size):
        folder.mkdir(parents=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}m", "tmpfs", folder], check=True)
        mounted.append(folder)

    yield mount
    for folder in mounted:
        subprocess.run(["umount", "--lazy", folder], check=True)


def fill(folder):
    """Write a file until there is no more space; return it."""
    path = folder / "fill"
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    assert shutil.disk_usage(folder).free < 4096
    return path


def health(deployment):
    context = ssl.create_default_context(cafile=deployment.folder / "certificates" / "ca.crt")
    try:
        address = f"https://localhost:{deployment.port}/health"
        return urllib.request.urlopen(address, context=context, timeout=20).status
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.long  # /health is bad for a minute
def test_full_disk_of_the_superlink_is_told_and_devices_stay(tmp_path, small_disk):
    deployment = Deployment(tmp_path / "deployment", 1)
    small_disk(deployment.folder / "certificates", 40)
    keys = {"num-clients": 1, "task": "mnist-cnn", "local-steps": 1}
    with deployment:
        run = deployment.train(tmp_path / "runs", **keys)
        # What it writes is for its user only.
        database = sorted((deployment.folder / "certificates").glob("superlink.db*"))
        assert database
        for path in (*database, run):
            assert not path.stat().st_mode & 0o077, path

        assert health(deployment) == 200
        device = deployment.processes["device-0"]
        filling = fill(deployment.folder / "certificates")
        keys |= {"round-timeout": 60, "num-server-rounds": 50}
        run = deployment.start_app(**keys, **{"run-dir": str(tmp_path / "full")})
        deployment.wait_for(lambda: health(deployment) == 503)
        why = r"the SuperLink cannot answer: .*(No space left on device|disk is full)"
        assert re.search(why, deployment.log("superlink"))

        filling.unlink()
        deployment.wait_for(lambda: health(deployment) == 200)
        if run.poll() is None:  # it may go on, or have failed
            deployment.run(["flwr", "stop", str(deployment.newest_run()["run-id"]), "deployment"])
        deployment.train(tmp_path / "runs", **{**keys, "num-server-rounds": 2})
        assert device.poll() is None


def test_full_disk_of_a_device_is_one_line_and_leaves_no_part_of_an_app(tmp_path, small_disk):
    deployment = Deployment(tmp_path / "deployment", 1)
    small_disk(deployment.folder / "home-device-0", 4)
    with deployment:
        filling = fill(deployment.folder / "home-device-0")
        keys = {"num-clients": 1, "run-dir": str(tmp_path / "runs")}
        assert deployment.start_app(**keys).wait(240) == 0
        assert deployment.newest_run()["status"] == "finished:failed"
        for name in ("device-0", "flwr-run"):
            why = r"the app cannot be stored in \S+: \[Errno 28\] No space left on device; free"
            assert re.search(why, deployment.log(name)), deployment.log(name)

        filling.unlink()
        assert deployment.start_app(**keys).wait(240) == 0
        assert deployment.newest_run()["status"] == "finished:completed"
