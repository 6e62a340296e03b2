"""Every command of README.md and docs/: run as it is written, or listed here with the reason.

Each runs in a new process, in a copy of the project, with the documents' own files on Python's
path. What is changed: the data are the embedded ones, the rounds are two, the clients ten and their
steps one unless the command says how many, and placeholders name what they stand for.
"""

import json
import os
import re
import shutil
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support import data_slices
from tests.support.documents import DOCUMENTS, ROOT, blocks, examples, shell_commands
from tests.support.flwr_run import flwr, local_superlink
from tests.support.installed import install
from tests.support.machines import working_tree
from tests.support.processes import succeed, until
from tests.support.run_folders import read_history, read_summary

PAGES = [path for path in DOCUMENTS if path.parent in (ROOT, ROOT / "docs")]
COMMANDS = list(dict.fromkeys(line for page in PAGES for line in shell_commands(page.read_text())))
IN_README = shell_commands((ROOT / "README.md").read_text())
EXAMPLE_RUN = "runs/20261121-123456-mnist-2nn-fedavg-3571"
SHORT = {"num-server-rounds": "2", "data-source": "embedded"}
SMALL = {"num-clients": "10", "local-steps": "1"}

# The beginnings of the commands that are not run here, by the reason.
NOT_RUN = {
    "It installs packages of the registry, GB of them, or changes these tests' environment.": (
        r"python3 -m venv|\.venv/bin/pip |make docs|pip (download|install ('|-e|--no|torch|mlflow))"
    ),
    "It runs these tests.": r"make (lint )?test|python -m pytest (-s )?tests/",
    "It needs an account, or what was published with one.": (
        r"flwr (new|login|app publish)|cd fedavg-app"
    ),
    "It needs the Hugging Face hub; test_own_files.py trains on a folder as it makes them.": (
        r"flwr-datasets create|hf download|.* femnist_task:"
    ),
    "It needs a server and devices: test_literal_deployment.py and test_access.py have them.": (
        r"deployment/super|flwr (supernode|ls|run \. deployment)|curl|sqlite3|ssh -|.*flower-super"
    ),
    "It needs the keys of several devices: test_secure_sum.py has them.": r"cat device-",
    "It needs a server and a device of Node.js: test_javascript_devices.py has them.": (
        r"NODE_EXTRA_CA_CERTS"
    ),
    "It needs systemd.": r"systemctl|journalctl",
    "It needs Docker.": r"docker compose",
    "It needs a GPU.": r"make gpu-check",
    "It makes 23 runs; test_plan.py has a plan of two methods.": r"fedavg plan",
    "It needs full MNIST, and makes three runs; test_board.py enters a strategy.": (
        r"python -m paper sweep mine\.toml"
    ),
    "It needs a second machine; test_ray_nodes.py has two nodes.": r"ray start|.* --ray-address",
    "It takes minutes.": r"make hashes|python -m benchmarks\.",
    "It serves until it is stopped.": r"tensorboard|python3 -m http\.server",
}
RUN = [command for command in COMMANDS if not any(re.match(p, command) for p in NOT_RUN.values())]
# They start neither Ray nor Flower; test_short_runs.py has a quick run of each.
QUICK = re.compile(
    r"make help|source|export|deployment/certificates\.sh|ssh-keygen|openssl|python docs/|"
    r"python simulation\.py partition --partition"
)
TAKES_LONG = re.compile(
    r"^make run|^flwr run|^make flwr-run|simulation\.py (run|central|resume)\b|"
    r"^fedavg (run|central|resume)\b| sweep |sweeps/|paper report$"
)
TRAINS = re.compile(r"make run|(\S*python simulation\.py|fedavg) (run|central|resume)\b")
UNDER_FLWR = re.compile(r"flwr run|make flwr-run")


class Project:
    """A copy of the project in which commands run, and the documents' files beside it."""

    def __init__(self, folder, flower):
        self.work, self.files = folder / "project", folder / "files"
        self.environment = {**flower, "PYTHONPATH": str(self.files)}
        working_tree(self.work)
        # The environment of these tests, as the one that make has built.
        (self.work / ".venv").mkdir()
        for path in Path(sys.prefix).iterdir():
            if path.name != ".ready":
                (self.work / ".venv" / path.name).symlink_to(path)
        (self.work / ".venv" / ".ready").touch()
        for page in PAGES:
            for name, content in examples(page).items():
                # An experiment is named by a path of the working folder.
                target = (self.work if "/" in name else self.files) / name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(content)
        for name, package in (("float16_fedavg.py", "strategies"), ("digits_task.py", "tasks")):
            shutil.copy(self.files / name, self.work / package)
        installed = install(self.files, folder / "installed")  # with its entry point
        self.environment["PYTHONPATH"] += f"{os.pathsep}{installed}"
        for table in (self.work / "mine/momentum.toml", self.work / "grids/methods.toml"):
            text = re.sub("num-server-rounds = [0-9]+", "num-server-rounds = 2", table.read_text())
            text = text.replace("seed = [1, 2, 3]", "seed = 1")  # a third of the runs
            table.write_text(text.replace("task =", 'data-source = "embedded"\ntask =', 1))

    def run(self, command, cwd=None):
        """Run the command to its end; it must succeed. Return what it printed."""
        words = ["bash", "-c", command]
        done = succeed(words, 500, cwd=cwd or self.work, env=self.environment)
        return done.stdout + done.stderr

    def runs(self):
        return set((self.work / "runs").glob("*"))

    def flower_run(self):
        """Return the newest run under Flower, as `flwr ls` lists it."""
        listed = flwr(self.environment, "ls", "--format", "json").stdout
        return json.loads(listed)["runs"][0]


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    with local_superlink(tmp_path_factory.mktemp("flwr")) as environment:
        project = Project(tmp_path_factory.mktemp("copy"), environment)
        yield project
        project.run("pip uninstall --yes fedavg-strategies")  # which README's command installed


@pytest.fixture(scope="module")
def finished(project):
    """A finished run of the project, with a checkpoint; the documents' own has its name."""
    before = project.runs()
    project.run(shortened("python simulation.py run --checkpoint-every 1"))
    (folder,) = project.runs() - before
    return folder.relative_to(project.work)


def shortened(command):
    """Return the command with few rounds, small work and the embedded data, where it trains."""
    if not TRAINS.match(command) and not UNDER_FLWR.match(command):
        return command
    keys = added_keys(command)
    if UNDER_FLWR.match(command):
        command = command.replace("num-supernodes=100", "num-supernodes=10")
        pairs = " ".join(f"{key}={value}" for key, value in keys.items())
        pairs = pairs.replace("=embedded", "='embedded'")
        for option in ('-c "', 'ARGS="'):
            if option in command:
                return command.replace(option, f"{option}{pairs} ")
        return f'{command} {"ARGS=" if command.startswith("make") else "-c "}"{pairs}"'
    options = " ".join(f"--{key} {value}" for key, value in keys.items())
    if command.startswith("make run"):
        return f'{command} ARGS="{options}"'
    return f"{re.sub(r'--num-server-rounds [0-9]+', '', command)} {options}"


def added_keys(command):
    """Return the keys that shorten a command, with their values; what it says itself stays."""
    keys = dict(SHORT)
    if " central" not in command:
        keys |= SMALL
    if "digits_task" in command or "my_task" in command:  # their data come with a library
        del keys["data-source"]
    if "local-epochs" in command:
        del keys["local-steps"]
        keys |= {"num-clients": "50", "fraction-train": "0.02"}  # one of 80 examples
    if "num-sampled-clients" in command:  # as many as a round has of a hundred
        del keys["num-clients"]
    if command.startswith("flwr run") and "num-supernodes" not in command:
        del keys["num-clients"]  # Flower's default is two SuperNodes, and a client on each
    if "resume" in command:
        return {}
    given = re.sub(r"--num-server-rounds [0-9]+", "", command)
    return {key: value for key, value in keys.items() if key not in given}


def case(command):
    """Return the case of a command; what takes long and is not in README.md is a long test."""
    if QUICK.match(command):
        return pytest.param(command, id=command)
    marks = [pytest.mark.slow]
    if command not in IN_README and TAKES_LONG.search(command):
        marks.append(pytest.mark.long)
    return pytest.param(command, marks=marks, id=command)


@pytest.mark.parametrize("command", [case(command) for command in RUN])
def test_command_of_a_document_succeeds(command, project, request):
    if "RUN_ID" in command:
        command = command.replace("RUN_ID", str(project.flower_run()["run-id"]))
    if EXAMPLE_RUN in command or "FOLDER" in command:
        folder = str(request.getfixturevalue("finished"))
        command = command.replace(EXAMPLE_RUN, folder).replace("FOLDER", folder)
    if "/path/to/cifar10" in command:
        folder = data_slices.write("cifar10-cnn", project.work / "cifar10")
        for file in folder.glob("*.bin"):  # enough for a hundred clients
            file.write_bytes(50 * file.read_bytes())
        command = command.replace("/path/to/cifar10", str(folder))
    command = command.replace("/path/to/that/folder", str(project.files))

    before = project.runs()
    cwd = project.files if command.startswith("python -m pytest") else project.work
    printed = project.run(shortened(command), cwd)
    if UNDER_FLWR.match(command):
        # `flwr run` itself succeeds even where the run fails, and may not wait for it.
        assert until(lambda: project.flower_run()["status"].startswith("finished"), 300)
        assert project.flower_run()["status"] == "finished:completed", printed
    if TRAINS.match(command) or UNDER_FLWR.match(command):
        folder = (project.runs() - before).pop() if "resume" not in command else Path(folder)
        history = read_history(project.work / folder)
        assert history[-1]["round"] == 2
        assert not any(record["rejected"] for record in history)
        assert read_summary(project.work / folder)["status"] == "finished"


def test_no_reason_is_given_for_nothing():
    for reason, pattern in NOT_RUN.items():
        assert any(re.match(pattern, command) for command in COMMANDS), reason
    elsewhere = re.findall(r"test_\w+\.py", " ".join(NOT_RUN))
    assert {name for name in elsewhere if not list(ROOT.glob(f"tests/**/{name}"))} == set()


def test_toml_of_the_documents_can_be_read():
    for page in PAGES:
        for language, content in blocks(page.read_text()):
            if language == "toml":
                tomllib.loads(content)


@pytest.mark.slow
def test_saved_model_is_read_as_the_page_says(project, finished):
    page = (ROOT / "docs" / "run-folder.md").read_text()
    (lines,) = [content for language, content in blocks(page) if language == "python"]
    lines = lines.replace("runs/FOLDER", str(finished))
    script = project.files / "read_model.py"
    script.write_text(f"{lines}assert logits.shape == (1, 10)\n")
    project.run(f"python {script}")
