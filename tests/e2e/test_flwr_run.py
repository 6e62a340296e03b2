"""`flwr build` and `flwr run` with a real SuperLink, as the README shows them."""

import re
import shutil
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.support import client_mods
from tests.support.documents import ROOT
from tests.support.flwr_run import flwr, local_superlink, run_app
from tests.support.processes import succeed
from tests.support.run_folders import only_folder, read_history, read_summary

pytestmark = pytest.mark.slow

# 100 clients, but few rounds and small work: the engine's own costs dominate.
KEYS = {"data-source": "embedded", "num-server-rounds": 3, "evaluate-every": 3, "seed": 7}
PACKAGES = ("fedavg_app", "strategies", "tasks")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXCLUDED = PROJECT["tool"]["flwr"]["app"]["fab-exclude"]
NOT_BUNDLED = tuple(pattern.removesuffix("**") for pattern in EXCLUDED)
FLOWER = "flwr.serverapp.strategy"
FOUR_CLIENTS = {
    "task": "mnist-logistic", "data-source": "embedded", "num-clients": 4, "fraction-train": 1.0,
    "num-server-rounds": 2,
}  # fmt: skip


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    with local_superlink(tmp_path_factory.mktemp("flwr")) as environment:
        yield environment | {"PYTHONPATH": str(ROOT)}  # for the mods of tests


@pytest.mark.long
def test_too_few_supernodes_fail_the_run_with_the_flag_to_add(environment, tmp_path):
    shown, status = run_app(environment, {**KEYS, "num-clients": 100, "run-dir": str(tmp_path)}, 3)
    assert status["status"] == "finished:failed"
    flag = '--federation-config "num-supernodes=100 client-resources-num-cpus=1"'
    assert flag in status["status-details"]
    assert flag in shown
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def tracked():
    return succeed(["git", "ls-files"], cwd=ROOT).stdout.split()


@pytest.fixture(scope="module")
def app(tracked, tmp_path_factory):
    """A copy of the tracked files, in a folder with the app's name, as a user would publish it."""
    copy = tmp_path_factory.mktemp("published") / "fedavg-app"
    for name in tracked:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_bytes((ROOT / name).read_bytes())
    return copy


@pytest.fixture(scope="module")
def bundle(environment, app, tmp_path_factory):
    """What `flwr build` makes of the app, and the folder that it is unpacked in."""
    flwr(environment, "build", "--app", str(app))
    (built,) = [*Path(ROOT).glob("*.fab"), *app.glob("*.fab")]
    moved = Path(shutil.move(built, tmp_path_factory.mktemp("bundle")))
    with zipfile.ZipFile(moved) as packed:
        packed.extractall(moved.parent / "unpacked")
    return moved, moved.parent / "unpacked"


def files_in(folder):
    return {str(p.relative_to(folder)): p for p in folder.rglob("*") if p.is_file()}


def test_bundle_has_the_app_and_nothing_else(environment, tracked, bundle):
    built, unpacked = bundle
    names = set(files_in(unpacked))
    packages = {name for name in tracked if name.split("/")[0] in PACKAGES and name.endswith(".py")}
    modules = {name for name in names if name.endswith(".py")}
    assert modules == {name for name in packages if not name.startswith(NOT_BUNDLED)}
    assert names - modules == {"pyproject.toml", "README.md", "LICENSE", ".info/CONTENT"}
    assert built.stat().st_size < 1_000_000
    # `flwr build` checks what format 1 asks for: the licence, Flower's version, the publisher.
    assert PROJECT["tool"]["flwr"]["app"]["fab-format-version"] == 1
    # All of it can be imported from the bundle alone.
    code = "import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]];"
    code += f"import fedavg_app as a; assert a.__file__.startswith({str(unpacked)!r})"
    names = [name[:-3].replace("/", ".") for name in modules]
    alone = {**environment, "PYTHONPATH": str(unpacked)}
    succeed([sys.executable, "-P", "-c", code, *names], cwd=unpacked.parent, env=alone)


def with_flowers(name, arguments, runs):
    own = {"strategy": f"{FLOWER}:{name}", "strategy-args": arguments, "run-dir": str(runs)}
    return {**FOUR_CLIENTS, **own}


def test_flowers_strategy_trains(environment, tmp_path):
    """tests/integration and tests/unit/strategies have the others, in one process."""
    keys = with_flowers("FedAdam", "eta = 0.01, tau = 0.001", tmp_path / "runs")
    shown, status = run_app(environment, keys, 4)
    assert status["status"] == "finished:completed", shown
    history = read_history(only_folder(tmp_path / "runs"))
    assert [record["round"] for record in history] == [0, 1, 2]
    assert not any(record["rejected"] for record in history)
    assert history[2]["test_loss"] < history[0]["test_loss"]


@pytest.mark.parametrize(("budget", "rounds"), [("300 kB up", 2), ("1 s on 4g", 5)])
def test_budget_ends_a_run(budget, rounds, environment, tmp_path):
    """The four replies of a round have 32 kB each; on 4G a round takes 0.19 s."""
    keys = {**FOUR_CLIENTS, "num-server-rounds": 9, "local-steps": 1, "run-dir": str(tmp_path)}
    shown, status = run_app(environment, {**keys, "budget": budget}, 4)
    assert status["status"] == "finished:completed", shown
    summary = read_summary(only_folder(tmp_path))
    assert (summary["rounds"], summary["status"]) == (rounds, "finished")
    assert f"of {budget.partition(' on ')[0]} spent" in shown


@pytest.mark.long
@pytest.mark.parametrize(
    ("mod", "reason"),
    [
        ("dying", "in round 2: "),
        ("reading", r"in 2 rounds in a row: JSONDecodeError: .*client_mods\.py, line"),
    ],
)
def test_run_whose_clients_fail_does_not_succeed(mod, reason, environment, tmp_path):
    """Flower replaces no process of its simulation that died."""
    runs = tmp_path / "runs"
    keys = {**FOUR_CLIENTS, "client-mods": f"{client_mods.HERE}:{mod}", "run-dir": str(runs)}
    shown, status = run_app(environment, keys, 4)
    assert status["status"] == "finished:failed"
    assert re.search(f"no usable reply {reason}", shown)
    folder = only_folder(runs)
    assert read_summary(folder)["status"] == "no-replies"
    assert (folder / "model.safetensors").is_file()


def test_failure_of_a_strategy_is_one_line(environment, tmp_path):
    keys = with_flowers("QFedAvg", "client-learning-rate = 0", tmp_path / "runs")
    shown, status = run_app(environment, keys, 4)
    assert status["status"] == "finished:failed"
    line = "strategy-args = 'client-learning-rate = 0': QFedAvg failed in round 1: ZeroDivisionErr"
    assert line in shown
