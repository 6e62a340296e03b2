"""`flwr build` and `flwr run` with a real SuperLink, as the README shows them."""

import shutil
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.support import client_mods
from tests.support.documents import ROOT
from tests.support.flwr_run import flwr, local_superlink, run_app
from tests.support.machines import working_tree
from tests.support.processes import succeed
from tests.support.run_folders import only_folder, read_summary

pytestmark = pytest.mark.slow

PACKAGES = ("fedavg_app", "strategies", "tasks")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXCLUDED = PROJECT["tool"]["flwr"]["app"]["fab-exclude"]
NOT_BUNDLED = tuple(pattern.removesuffix("**") for pattern in EXCLUDED)
FOUR_CLIENTS = {
    "task": "mnist-logistic", "data-source": "embedded", "num-clients": 4, "fraction-train": 1.0,
    "num-server-rounds": 2,
}  # fmt: skip


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    with local_superlink(tmp_path_factory.mktemp("flwr")) as environment:
        yield environment | {"PYTHONPATH": str(ROOT)}  # for the mods of tests


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    """A copy of the project, in a folder with the app's name, as a user would publish it."""
    copy = tmp_path_factory.mktemp("published") / "fedavg-app"
    working_tree(copy)
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


def test_bundle_has_the_app_and_nothing_else(environment, app, bundle):
    built, unpacked = bundle
    names = set(files_in(unpacked))
    packages = {
        str(path.relative_to(app)) for name in PACKAGES for path in app.glob(f"{name}/**/*.py")
    }
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


@pytest.mark.long
def test_run_whose_clients_die_does_not_succeed(environment, tmp_path):
    """Flower replaces no process of its simulation that died."""
    runs = tmp_path / "runs"
    keys = {**FOUR_CLIENTS, "client-mods": f"{client_mods.HERE}:dying", "run-dir": str(runs)}
    shown, status = run_app(environment, keys, 4)
    assert status["status"] == "finished:failed"
    assert "no usable reply in round 2: " in shown
    folder = only_folder(runs)
    assert read_summary(folder)["status"] == "no-replies"
    assert (folder / "model.safetensors").is_file()


@pytest.mark.long
def test_failure_of_a_strategy_is_one_line(environment, tmp_path):
    own = {
        "strategy": "flwr.serverapp.strategy:QFedAvg", "run-dir": str(tmp_path / "runs"),
        "strategy-args": "client-learning-rate = 0",
    }  # fmt: skip
    shown, status = run_app(environment, {**FOUR_CLIENTS, **own}, 4)
    assert status["status"] == "finished:failed"
    line = "strategy-args = 'client-learning-rate = 0': QFedAvg failed in round 1: ZeroDivisionErr"
    assert line in shown
    assert line in status["status-details"]
