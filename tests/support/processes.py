"""Real processes of one test, found again by a mark in their environment."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

from tests.support.documents import ROOT

MARK = "FEDAVG_APP_TEST_PROCESSES"
# Before a command that is sent SIGINT: tests that a script starts in the background ignore it, and
# so would their processes, which those of a terminal do not.
AS_IN_A_TERMINAL = ["env", "--default-signal=INT"]


class Processes:
    """All processes started with `environment`, and their descendants; leaving it kills them.

    Their temporary files are in a folder of their own, whose path is short: Ray's sockets are in
    there.
    """

    def __init__(self):
        self._mark = uuid.uuid4().hex
        self._folder = tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True)
        self.environment = {
            **os.environ, MARK: self._mark, "TMPDIR": self._folder.name,
            "RAY_USAGE_STATS_ENABLED": "0",
        }  # fmt: skip

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()
        self._folder.cleanup()

    def ray(self, *options):
        """Start a Ray node, which stays while runs come and go."""
        subprocess.run(
            [str(Path(sys.executable).parent / "ray"), "start", "--disable-usage-stats", *options],
            env=self.environment, check=True, capture_output=True, timeout=120,
        )  # fmt: skip

    def ray_head(self, cpus):
        """Start a Ray cluster; return its address."""
        port = free_port()
        self.ray("--head", f"--port={port}", "--include-dashboard=false", f"--num-cpus={cpus}")
        return f"127.0.0.1:{port}"

    def living(self, containing="", but_not="nothing"):
        """Return the ids of those whose command line has the first text and not the second."""
        return [
            pid
            for pid, command in self.commands().items()
            if containing in command and but_not not in command
        ]

    def commands(self):
        """Return the command line of each process that is alive, by its id."""
        found = {}
        for process in Path("/proc").glob("[0-9]*"):
            try:
                marked = f"{MARK}={self._mark}".encode() in (process / "environ").read_bytes()
                command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if marked and command:
                found[int(process.name)] = command
        return found

    def kill(self, pids=None):
        """Kill these processes, or all."""
        for pid in self.living() if pids is None else pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def gone(self, seconds=30, but_for="nothing"):
        """Return whether all end within the time, except those with that text in their command."""
        return until(lambda: not self.living(but_not=but_for), seconds)


def ran(words, seconds=400, **options):
    """Run a command to its end; return what `subprocess.run` does."""
    return subprocess.run(words, capture_output=True, text=True, timeout=seconds, **options)


def simulation(*words, **options):
    """Run simulation.py to its end."""
    return ran([sys.executable, str(ROOT / "simulation.py"), *words], **options)


def succeed(words, seconds=400, **options):
    """Run a command to its end, which must be a success."""
    done = ran(words, seconds, **options)
    assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
    return done


def end(processes, seconds=30):
    """End process groups; kill those that do not end in time."""
    for process in processes:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
    for process in processes:
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def session(pid):
    """Return the command line of each living process of a session, by its id."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            state, *_, number = (process / "stat").read_text().rpartition(")")[2].split()[:4]
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if int(number) == pid and state not in "ZX":
            found[int(process.name)] = command
    return found


def until(condition, seconds):
    """Return whether the condition becomes true within the time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.1)
    return False
