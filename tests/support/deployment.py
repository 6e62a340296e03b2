"""docs/deployment.md's commands as real processes on this machine, for tests and benchmarks."""

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from tests.support.documents import ROOT, blocks, shell_lines
from tests.support.processes import end, free_port

BIN = Path(sys.executable).parent
TEXT = (ROOT / "docs" / "deployment.md").read_text()
COMMON = {"num-server-rounds": 2, "data-source": "embedded", "task": "mnist-logistic"}


class Deployment:
    """A SuperLink and SuperNodes in a folder of their own; a context manager.

    Args:
        folder: Where certificates, keys and logs go; it is made, or is empty.
        nodes: How many SuperNodes to start; the i-th has ``partition-id=i``.
        fleet_port: The port that SuperNodes connect to, if it is a proxy's and not ``port``.
        network: Puts each SuperNode into a network namespace of its own; None puts none there.
    """

    def __init__(self, folder, nodes, fleet_port=None, network=None):
        self.folder, self.nodes, self.port = folder, nodes, free_port()
        self.network, self.host = network, network.address if network else "localhost"
        self.fleet_port = fleet_port or self.port
        folder.mkdir(exist_ok=True)
        (folder / "deployment").symlink_to(ROOT / "deployment")
        self.processes = {}
        self.node_options = []
        self.environment = {
            **os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "FLWR_HOME": str(folder / "home"), "FLWR_TELEMETRY_ENABLED": "0",
        }  # fmt: skip
        (folder / "home").mkdir()
        toml = next(text for language, text in blocks(TEXT) if language == "toml")
        toml = toml.replace("/absolute/path/to", str(folder / "certificates"))
        (folder / "home" / "config.toml").write_text(self.here(toml))

    def __enter__(self):
        try:
            self.run(self.command("deployment/certificates.sh"))
            self.start_superlink()
            for number in range(self.nodes):
                self.add_node(number)
            self.wait_for_devices(self.nodes)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def here(self, text):
        """Return the document's text with this machine's addresses."""
        return (
            text.replace("superlink.example.org:8000", f"{self.host}:{self.port}")
            .replace("localhost:8000", f"localhost:{self.port}")
            .replace("superlink.example.org 192.0.2.10", self.host)
        )

    def command(self, program, part=""):
        """Return the words of the document's only command of that program with that part."""
        lines = [line for line in shell_lines(TEXT) if line.startswith(program) and part in line]
        assert len(lines) == 1, lines
        return shlex.split(self.here(lines[0]))

    def run(self, words, cwd=None, seconds=300):
        return subprocess.run(
            words, cwd=cwd or self.folder, env=self.environment, capture_output=True, text=True,
            timeout=seconds, check=True,
        )  # fmt: skip

    def start(self, name, words):
        """Start a process group; its output goes to a file."""
        log = (self.folder / f"{name}.log").open("w")
        self.processes[name] = subprocess.Popen(
            words, cwd=self.folder, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            env={**self.environment, "FLWR_HOME": str(self.folder / f"home-{name}")},
        )  # fmt: skip
        return self.processes[name]

    def wait_for(self, condition, seconds=90):
        end = time.monotonic() + seconds
        while not condition():
            logs = "\n".join(p.read_text()[-1500:] for p in self.folder.glob("*.log"))
            assert time.monotonic() < end, logs
            time.sleep(0.3)

    def start_superlink(self):
        words = [*self.command("deployment/superlink.sh"), "--port", str(self.port)]
        self.start("superlink", words)
        self.wait_for(self.listening)

    def listening(self):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def wait_for_devices(self, number):
        """Wait until that many SuperNodes are online: by their logs first, as `flwr` takes long."""
        logs = [self.folder / f"{key}.log" for key in self.processes if key.startswith("device-")]
        self.wait_for(lambda: sum("SuperNode ID: " in log.read_text() for log in logs) >= number)
        self.wait_for(lambda: self.online() == number)

    def online(self):
        return len(self.online_nodes())

    def online_nodes(self):
        """Return the ids of the SuperNodes that the SuperLink lists as online."""
        listed = self.run(["flwr", "supernode", "list", "deployment", "--format", "json"]).stdout
        nodes = json.loads(listed)["nodes"]
        return [node["node-id"] for node in nodes if node["status"] == "online"]

    def add_node(self, number, config=None):
        """Make a SuperNode's key, register it and start the SuperNode, as the document does."""
        key = f"device-{number}"
        for words in (self.command("ssh-keygen"), self.command("flwr supernode register")):
            self.run([word.replace("device-0", key) for word in words])
        return self.start_node(number, key, config)

    def add_hostile_node(self, number, module):
        """Add a SuperNode whose processes import a module of the tests and call its `install`."""
        folder, honest = self.folder / "hostile", self.environment
        name = Path(module.__file__).stem
        if not folder.is_dir():  # or another, which may just read it, has made it
            folder.mkdir()
            shutil.copy(module.__file__, folder)
            (folder / "sitecustomize.py").write_text(f"import {name}\n\n{name}.install()\n")
        paths = [str(folder), honest.get("PYTHONPATH", "")]
        self.environment = {**honest, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        self.add_node(number)
        self.environment = honest

    def start_node(self, number, key, config=None, authority=None, options=()):
        words = self.command("deployment/supernode.sh", "num-partitions")
        words = [word.replace("device-0", key) for word in words]
        words[4] = config or words[4].replace("partition-id=0", f"partition-id={number}")
        words[1] = f"{self.host}:{self.fleet_port}"
        words[2] = authority or words[2]
        if self.network:
            words = [*self.network.inside(number), *words]
        return self.start(key, [*words, *self.node_options, *options])

    def stop_node(self, key):
        """Stop a SuperNode that is online, and wait until the SuperLink has it as offline.

        A SuperLink refuses a SuperNode that it lists as online. If it ends without signing
        off, for example since it got no answer, it is listed until 60 s after its last heartbeat.
        """
        (node,) = re.findall(r"SuperNode ID: (\d+)", self.log(key))
        os.killpg(self.processes[key].pid, signal.SIGTERM)
        self.processes[key].wait(30)
        self.wait_for(lambda: node not in self.online_nodes())

    def log(self, name):
        return (self.folder / f"{name}.log").read_text()

    def app_command(self, **keys):
        """Return the document's command that runs an app, with these keys besides its own."""
        words = self.command("flwr run")
        documented = dict(pair.split("=") for pair in words[-1].split())
        given = {k: f"{v!r}" if isinstance(v, str) else str(v) for k, v in keys.items()}
        words[-1] = " ".join(f"{key}={value}" for key, value in {**documented, **given}.items())
        return words

    def run_app(self, app=ROOT, seconds=300, **keys):
        """Run the app in that folder with these keys besides the document's; it must succeed."""
        done = self.run(self.app_command(**keys), app, seconds)
        assert self.newest_run()["status"] == "finished:completed", done.stdout + done.stderr

    def start_app(self, **keys):
        """Start this app with `COMMON` keys and these; return its process, which ends with all."""
        log = (self.folder / "flwr-run.log").open("a")
        run = subprocess.Popen(
            self.app_command(**{**COMMON, **keys}), cwd=ROOT, env=self.environment,
            stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        self.processes[f"flwr-run-{run.pid}"] = run
        return run

    def newest_run(self):
        """Return what `flwr ls` lists of the run started last."""
        listed = self.run([*self.command("flwr ls"), "--format", "json"]).stdout
        return json.loads(listed)["runs"][0]

    def train(self, runs, **keys):
        """Run this app, for two rounds by default; return the run's folder."""
        self.run_app(**{"run-dir": str(runs), **COMMON, **keys})
        return max(runs.iterdir(), key=lambda folder: folder.stat().st_mtime)

    def stop(self):
        end(self.processes.values())
