"""Where a proxy is set, this machine's own SuperLink is reached without it."""

import os
import shutil

import pytest

from fedavg_app.cli import doctor
from tests.support.documents import ROOT
from tests.support.processes import succeed

LOOPBACK = "localhost,127.0.0.1,::1"
ENVIRONMENT = {key: value for key, value in os.environ.items() if key.lower() != "no_proxy"}
ENVIRONMENT["HTTP_PROXY"] = "http://proxy.example.org:3128"
SHOW = '#!/bin/sh\necho "$NO_PROXY $no_proxy"\n'


def run(words, folder, **variables):
    """Run a command with scripts that show the variables in place of python3 and flwr."""
    for name in ("python3", "python", "flwr"):
        (folder / name).write_text(SHOW)
        (folder / name).chmod(0o755)
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    environment = {**ENVIRONMENT, "PATH": path, **variables}
    return succeed(words, env=environment, cwd=folder.parents[1]).stdout


@pytest.mark.parametrize("own", [{}, {"NO_PROXY": "intra.net"}, {"no_proxy": "intra.net"}])
def test_scripts_and_makefile_leave_the_loopback_device_out(tmp_path, own):
    folder = tmp_path / ".venv" / "bin"
    folder.mkdir(parents=True)
    (tmp_path / "server.pem").touch()
    shutil.copy2(ROOT / "Makefile", tmp_path)
    shutil.copy2(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / ".venv" / ".ready").touch()
    expected = f"{''.join(own.values())},{LOOPBACK}"
    superlink = [str(ROOT / "deployment" / "superlink.sh"), str(tmp_path)]
    script = str(ROOT / "deployment" / "supernode.sh")
    supernode = [script, "a:1", "ca.crt", "key", "partition-id=0"]
    for words in (superlink, supernode, ["make", "flwr-run"]):
        assert f"{expected} {expected}\n" in run(words, folder, **own)


@pytest.mark.parametrize("no_proxy", ["", LOOPBACK])
def test_doctor_names_a_proxy_that_hides_the_superlink(monkeypatch, no_proxy):
    monkeypatch.setattr(os, "environ", {**ENVIRONMENT, "NO_PROXY": no_proxy})
    found = " ".join(text for _, text, _ in doctor._proxy())
    assert ("http://proxy.example.org:3128" in found) == (not no_proxy)
