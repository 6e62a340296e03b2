"""Machines in network namespaces of their own, on which the lines of a document are run."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.documents import ROOT
from tests.support.processes import end


def working_tree(folder):
    """Copy what a commit of the working tree would have into the folder."""
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


class Machine:
    """A shell in a network namespace, with a home, a working folder and logs in its own folder.

    A context manager, which ends what was started.
    """

    def __init__(self, network, number, folder):
        self._words = network.inside(number)
        self.home, self.work, self._folder = folder / "home", folder / "work", folder
        self._processes = []
        for path in (self.home, self.work):
            path.mkdir(parents=True)
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("FLWR_", "XDG_"))}
        self.environment = {
            **clean, "HOME": str(self.home), "FLWR_TELEMETRY_ENABLED": "0",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }  # fmt: skip

    def __enter__(self):
        return self

    def __exit__(self, *_):
        end(self._processes)

    def run(self, line, seconds=120):
        """Run a line to its end; return what it printed. It must succeed."""
        done = subprocess.run(
            [*self._words, "bash", "-c", line], cwd=self.work, env=self.environment,
            capture_output=True, text=True, timeout=seconds,
        )  # fmt: skip
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}\n{self.logs()}"
        return done.stdout

    def start(self, line):
        """Start a line; its output goes to a file."""
        log = (self._folder / f"{len(self._processes)}.log").open("w")
        process = subprocess.Popen(
            [*self._words, "bash", "-c", f"exec {line}"], cwd=self.work, env=self.environment,
            stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        self._processes.append(process)
        return process

    def logs(self):
        return "\n".join(path.read_text()[-3000:] for path in self._folder.glob("*.log"))
