"""`flwr` commands with a local SuperLink of their own."""

import json
import os
import sys
from contextlib import contextmanager
from pathlib import Path

from tests.support.documents import ROOT
from tests.support.processes import Processes, free_port, succeed

BIN = Path(sys.executable).parent
# `flwr`, but it gives its SuperLink 180 seconds to start, not 15: the machine may be busy.
FLWR = """
from flwr.cli import app, local_superlink
local_superlink.LOCAL_SUPERLINK_STARTUP_TIMEOUT = 180
app.app()
"""


@contextmanager
def local_superlink(home):
    """Yield an environment for `flwr` commands; its SuperLink ends with the context.

    A home and a port of its own, so that no other SuperLink takes the runs.
    """
    with Processes() as started:
        yield {
            **started.environment, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "FLWR_HOME": str(home), "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": str(free_port()),
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        }  # fmt: skip


def flwr(environment, *arguments):
    return succeed([sys.executable, "-P", "-c", FLWR, *arguments], cwd=ROOT, env=environment)


def run_app(environment, keys, supernodes):
    """Run the app; return what it printed, and the run as `flwr ls` lists it.

    `flwr run` exits with 0 even when the run fails.
    """
    pairs = " ".join(f"{key}={value!r}" for key, value in keys.items())
    federation = f"num-supernodes={supernodes} client-resources-num-cpus=1"
    words = ("run", ".", "--stream", "--federation-config", federation, "-c", pairs)
    done = flwr(environment, *words)
    newest = json.loads(flwr(environment, "ls", "--format", "json").stdout)["runs"][0]
    return done.stdout + done.stderr, newest
