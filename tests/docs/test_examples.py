"""The examples of the documents, built, installed and run as a reader would."""

import json
import os
import subprocess
import sys
import zipfile

import pytest

from tests.docs.reading import ROOT, commands, examples

TASK_DOCUMENT = ROOT / "docs" / "writing-a-task.md"
STRATEGY_DOCUMENT = ROOT / "docs" / "writing-a-strategy.md"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """The folder that holds the files of both documents as their readers save them."""
    folder = tmp_path_factory.mktemp("package")
    for document in (TASK_DOCUMENT, STRATEGY_DOCUMENT):
        for name, content in examples(document).items():
            (folder / name).write_text(content)
    return folder


@pytest.fixture(scope="module")
def installed(package, tmp_path_factory):
    """A folder for PYTHONPATH with the strategy's package installed and the task's file."""
    wheels, target = tmp_path_factory.mktemp("wheels"), tmp_path_factory.mktemp("installed")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(wheels)]
    built = subprocess.run(build, cwd=package, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    # To install a pure Python wheel is to unpack it; pip need not be there.
    with zipfile.ZipFile(next(wheels.glob("*.whl"))) as wheel:
        wheel.extractall(target)
    (target / "digits_task.py").write_text((package / "digits_task.py").read_text())
    return target


def python(*arguments, cwd, path):
    """Run Python with ``path`` on its path."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(path)},
        capture_output=True,
        text=True,
        timeout=300,
    )


def shown(document, part):
    """Return the words of the one simulation command of the document that has ``part``."""
    found = [
        words
        for program, *words in commands(document.read_text())
        if program == "simulation.py" and part in words
    ]
    assert len(found) == 1
    return found[0]


def simulate(words, installed, runs):
    """Run the command in one worker; return its history and its summary."""
    options = [*words, "--num-workers", "1", "--run-dir", runs]
    result = python("simulation.py", "run", *options, cwd=ROOT, path=installed)
    assert result.returncode == 0, result.stdout + result.stderr
    (run,) = runs.iterdir()
    history = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    return history, json.loads((run / "summary.json").read_text())


def check_float16(history):
    for record in history[1:]:
        assert not record["rejected"]
        assert 0.45 < record["bytes_up"] / record["bytes_down"] < 0.55


def test_strategy_runs_by_its_entry_point(installed, tmp_path):
    words = shown(STRATEGY_DOCUMENT, "float16-fedavg")
    history, _ = simulate(words, installed, tmp_path)
    assert [record["round"] for record in history] == [0, 1, 2, 3]
    assert history[-1]["accuracy"] > history[0]["accuracy"] + 0.3
    check_float16(history)


def test_task_reaches_its_target_and_strategy_runs_by_its_path(installed, tmp_path):
    words = [
        *shown(TASK_DOCUMENT, "digits_task:TASK"),
        *("--strategy", "float16_fedavg:Float16FedAvg"),
    ]
    history, summary = simulate(words, installed, tmp_path)
    assert summary["target-accuracy"] == 0.95
    assert summary["rounds-to-target"] < 15  # "after about 10 rounds"
    assert history[0]["accuracy"] < 0.3
    check_float16(history)


def test_the_strategys_own_test_passes(package, installed):
    name = "test_float16_fedavg.py"
    options = ["-q", "-p", "no:cacheprovider", "--rootdir", package]
    result = python("-m", "pytest", *options, name, cwd=package, path=installed)
    assert result.returncode == 0, result.stdout + result.stderr


def test_examples_are_clean(package):
    files = sorted(package.glob("*.py"))
    assert len(files) == 3
    own = "lint.isort.known-first-party = ['float16_fedavg']"
    settings = ["--no-cache", "--config", ROOT / "pyproject.toml", "--config", own]
    for action in (["check"], ["format", "--check"]):
        result = python("-m", "ruff", *action, *settings, *files, cwd=ROOT, path="")
        assert result.returncode == 0, result.stdout + result.stderr
