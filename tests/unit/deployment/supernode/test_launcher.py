"""The start of a device: when clients are warm, and when Flower's own SuperNode is run instead."""

import os
import re
import sys
from importlib.metadata import version

import pytest

from tests.support.documents import ROOT
from tests.support.processes import ran

OPTIONS = ["--superlink", "here:1", "--node-config", "partition-id=0"]


@pytest.fixture
def start(tmp_path):
    """Start `deployment.supernode` where flower-supernode is a script that shows its options."""
    script = tmp_path / "bin" / "flower-supernode"
    script.parent.mkdir()
    script.write_text('#!/bin/sh\necho "flower-supernode $*"\nexit 7\n')
    script.chmod(0o755)

    def start(*options, path=()):
        environment = {
            **os.environ, "PATH": f"{script.parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join(map(str, [*path, ROOT])),
        }  # fmt: skip
        return ran([sys.executable, "-P", "-m", "deployment.supernode", *options], env=environment)

    return start


def test_incompatible_flower_is_reported_and_its_own_supernode_runs(start, tmp_path):
    (tmp_path / "other" / "flwr").mkdir(parents=True)
    (tmp_path / "other" / "flwr" / "__init__.py").write_text("__version__ = '1.99.0'")
    done = start(*OPTIONS, path=[tmp_path / "other"])
    assert done.returncode == 7
    assert re.fullmatch(rf"flower-supernode {' '.join(OPTIONS)} --port \d+\n", done.stdout)
    (line,) = done.stderr.splitlines()
    assert "each message starts a new Python process" in line
    assert "lacks a part (No module named 'flwr." in line


def test_chosen_isolation_runs_flowers_supernode_and_says_nothing(start):
    done = start("--isolation=process", "--port", "9", "--version")
    assert done.returncode == 0
    assert done.stdout == f"Flower version: {version('flwr')}\n"
    assert "deployment.supernode" not in done.stderr


# A SuperNode whose loop or heartbeat raises, or whose loop returns, beside its HTTP server, which
# goes on.
FAILING = """
import sys, threading, time
from importlib import import_module

def fail():
    raise ConnectionError("no\\nroute")

def flower_supernode():
    threading.Thread(target=time.sleep, args=(3600,)).start()
    if "--raises" in sys.argv:
        fail()
    if "--heartbeat-raises" in sys.argv:
        threading.Thread(target=sys.exit).start()  # what ends a thread by itself is no failure
        threading.Thread(target=fail).start()
        time.sleep(3600)

import_module("flwr.supernode.cli.flower_supernode").flower_supernode = flower_supernode
"""


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--raises"], "ConnectionError: no route"),  # with warm clients
        (["--raises", "--isolation", "subprocess"], "ConnectionError: no route"),
        (["-x", "--isolation", "subprocess"], "its loop is over"),
        (["--heartbeat-raises", "--isolation", "subprocess"], "ConnectionError: no route"),
    ],
)
def test_supernode_that_cannot_go_on_ends_with_a_line_and_a_status(start, tmp_path, options, why):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(FAILING)
    done = start(*OPTIONS, *options, path=[tmp_path / "site"])
    assert done.returncode == 1
    line = f"deployment.supernode: the SuperNode cannot go on ({why}), and exits with status 1"
    assert line in done.stderr.splitlines()


CYCLES = """
import gc, threading, time
from pathlib import Path
from deployment.supernode import memory

def megabytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6

gc.set_threshold(10**6)  # as many new objects as an idle SuperNode makes in hours
memory.STARTING = 0
before = megabytes()
for _ in range(4):
    request = [b"x" * 50_000_000]
    request.append(request)
most = megabytes()
del request
threading.Thread(target=memory.return_memory, daemon=True).start()
end = time.monotonic() + 30
while megabytes() > before + 50 and time.monotonic() < end:
    time.sleep(0.1)
print(most - before > 190, megabytes() < before + 50)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_in_reference_cycles_is_returned():
    assert ran([sys.executable, "-c", CYCLES], cwd=ROOT).stdout == "True True\n"
