"""The examples of the documents, built and run as an installed package."""

import json
import os
import subprocess
import sys
import zipfile
from functools import cache

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.support.documents import ROOT, commands, examples

TASK_DOCUMENT = ROOT / "docs" / "writing-a-task.md"
STRATEGY_DOCUMENT = ROOT / "docs" / "writing-a-strategy.md"
MODULES = {"digits_task", "fedavgm", "float16_fedavg", "my_task", "quantise8"}

# The small runs that are made twice: by simulation.py and by `flwr run`.
NUM_CLIENTS, NUM_ROUNDS = 4, 3
SMALL = {
    "task": "mnist-logistic", "data-source": "embedded", "num-clients": NUM_CLIENTS,
    "fraction-train": 1.0, "num-server-rounds": NUM_ROUNDS, "seed": 7,
}  # fmt: skip
QUANTISED = "uplink = 'quantise8:Quantise8', downlink = {name = 'quantise8:Quantise8', levels = 63}"
RUNS = {
    "fedavg": {"strategy": "fedavg"},
    "fedavgm": {"strategy": "fedavgm:FedAvgM", "strategy-args": "beta = 0.5"},
    "quantise8": {"strategy": "compressed", "strategy-args": QUANTISED},
    "float16-fedavg": {"strategy": "float16-fedavg", "task": "digits_task:TASK"},
}

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
    """A folder for PYTHONPATH, outside the repository, with the package of both installed."""
    wheels, target = tmp_path_factory.mktemp("wheels"), tmp_path_factory.mktemp("installed")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(wheels)]
    built = subprocess.run(build, cwd=package, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    # To install a pure Python wheel is to unpack it; pip need not be there.
    (wheel,) = wheels.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(target)
    assert {path.stem for path in target.glob("*.py")} >= MODULES
    assert not target.is_relative_to(ROOT)
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


def documented(document, part):
    """Return the words of the one simulation command of the document that has ``part``."""
    (words,) = [
        words
        for program, *words in commands(document.read_text())
        if program == "simulation.py" and part in words
    ]
    return words


def read_run(runs):
    """Return the history, the summary and the model of the one run in the folder."""
    (run,) = runs.iterdir()
    history = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    summary = json.loads((run / "summary.json").read_text())
    return history, summary, load_file(run / "model.safetensors")


def simulate(words, installed, runs):
    """Run the command in one worker; return what `read_run` finds."""
    options = [*words, "--num-workers", "1", "--run-dir", runs]
    result = python("simulation.py", "run", *options, cwd=ROOT, path=installed)
    assert result.returncode == 0, result.stdout + result.stderr
    return read_run(runs)


@pytest.fixture(scope="module")
def simulated(installed, tmp_path_factory):
    """A function from a name in `RUNS` to what `read_run` finds; each is run once."""

    @cache
    def run(name):
        words = [f"--{key}={value}" for key, value in {**SMALL, **RUNS[name]}.items()]
        return simulate(words, installed, tmp_path_factory.mktemp(name))

    return run


def check_float16(history):
    for record in history[1:]:
        assert not record["rejected"]
        assert 0.45 < record["bytes_up"] / record["bytes_down"] < 0.55


def test_task_reaches_its_target_and_strategy_runs_by_its_path(installed, tmp_path):
    words = [
        *documented(TASK_DOCUMENT, "digits_task:TASK"),
        *("--strategy", "float16_fedavg:Float16FedAvg"),
    ]
    history, summary, _ = simulate(words, installed, tmp_path)
    assert summary["target-accuracy"] == 0.95
    assert summary["rounds-to-target"] == pytest.approx(10, abs=4)  # "after about 10 rounds"
    assert history[0]["accuracy"] < 0.3
    check_float16(history)


def test_server_momentum_changes_the_model_from_the_second_round_on(simulated):
    (history, _, model), (plain_history, _, plain_model) = simulated("fedavgm"), simulated("fedavg")
    losses, plain_losses = (
        [record["test_loss"] for record in records] for records in (history, plain_history)
    )
    assert losses[:2] == pytest.approx(plain_losses[:2], rel=1e-4)
    assert losses[2] != pytest.approx(plain_losses[2], rel=1e-2)
    for layer, array in model.items():
        assert not np.allclose(array, plain_model[layer], rtol=0.01)


def test_quantised_updates_take_a_byte_for_each_entry(simulated):
    history, _, model = simulated("quantise8")
    update = sum(array.size + 4 for array in model.values())  # "a scale for each array"
    # What comes in addition: heads, metrics or config, and names.
    for record in history[1:]:
        assert 0 < record["bytes_up"] / NUM_CLIENTS - update < 100
    for record in history[2:]:  # the first round sends the full model
        assert 0 < record["bytes_down"] / NUM_CLIENTS - update < 250
