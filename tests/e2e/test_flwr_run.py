"""`flwr build` and `flwr run` with a real SuperLink, as the README shows them."""

import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.support.documents import ROOT
from tests.support.flwr_run import flwr, local_superlink, run_app

pytestmark = pytest.mark.slow

# 100 clients, but few rounds and small work: the engine's own costs dominate.
KEYS = {"data-source": "embedded", "num-server-rounds": 3, "evaluate-every": 3, "seed": 7}
# Enough rounds that clients come back: their residuals and their copies of the model then matter.
STC = {"strategy": "stc", "local-steps": 1, "batch-size": 20, "fraction-train": 0.3}
PACKAGES = ("fedavg_app", "strategies", "tasks")
# What only simulation.py uses, and what starts a SuperLink or a SuperNode.
NOT_BUNDLED = (
    "fedavg_app/ray_engine/",
    "fedavg_app/superlink/",
    "fedavg_app/supernode/",
    "fedavg_app/callbacks/plots.py",
    "fedavg_app/callbacks/tensorboard.py",
    "fedavg_app/partitioning/distribution_report.py",
    "fedavg_app/partitioning/data_distribution.py",
    "fedavg_app/server/central_sgd.py",
)


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    with local_superlink(tmp_path_factory.mktemp("flwr")) as environment:
        yield environment


def test_flwr_run_trains_the_model_of_simulation_py_with_stc(environment, tmp_path):
    keys = {**KEYS, **STC, "num-server-rounds": 8, "evaluate-every": 8}
    shown, status = run_app(environment, {**keys, "run-dir": str(tmp_path / "flwr")}, 100)
    assert status["status"] == "finished:completed", shown
    (folder,) = (tmp_path / "flwr").iterdir()
    assert f"results: {folder}" in shown
    assert "embedded MNIST subset" in shown
    assert {path.name for path in folder.iterdir()} == {
        "best.safetensors", "run.log",
        "config.json", "history.jsonl", "summary.json", "model.safetensors",
    }  # fmt: skip

    flags = [f"--{key}={value}" for key, value in keys.items()]
    subprocess.run(
        [sys.executable, "simulation.py", "run", *flags, f"--run-dir={tmp_path / 'ray'}"],
        cwd=ROOT, env=environment, check=True, timeout=300, capture_output=True,
    )  # fmt: skip
    (other,) = (tmp_path / "ray").iterdir()
    ours, theirs = (load_file(path / "model.safetensors") for path in (folder, other))
    assert ours.keys() == theirs.keys()
    for name, array in ours.items():
        assert np.array_equal(array, theirs[name])


def test_too_few_supernodes_fail_the_run_with_the_flag_to_add(environment, tmp_path):
    shown, status = run_app(environment, {**KEYS, "run-dir": str(tmp_path)}, 3)
    assert status["status"] == "finished:failed"
    flag = '--federation-config "num-supernodes=100 client-resources-num-cpus=1"'
    assert flag in status["status-details"]
    assert flag in shown
    assert not list(tmp_path.iterdir())


def test_bundle_has_the_app_and_nothing_else(environment, tmp_path):
    copy = tmp_path / "app"
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    for name in tracked:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_bytes((ROOT / name).read_bytes())
    flwr(environment, "build", "--app", str(copy))
    (bundle,) = [*Path(ROOT).glob("*.fab"), *copy.glob("*.fab")]
    try:
        with zipfile.ZipFile(bundle) as packed:
            names = set(packed.namelist())
            packed.extractall(tmp_path / "unpacked")
        size = bundle.stat().st_size
    finally:
        bundle.unlink()
    packages = {name for name in tracked if name.split("/")[0] in PACKAGES and name.endswith(".py")}
    modules = {name for name in names if name.endswith(".py")}
    assert modules == {name for name in packages if not name.startswith(NOT_BUNDLED)}
    assert not {name for name in names if name.startswith(("tests", "docs", "benchmarks"))}
    assert size < 1_000_000
    # All of it can be imported from the bundle alone.
    code = "import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]];"
    code += f"import fedavg_app as a; assert a.__file__.startswith({str(tmp_path / 'unpacked')!r})"
    subprocess.run(
        [sys.executable, "-P", "-c", code, *(name[:-3].replace("/", ".") for name in modules)],
        cwd=tmp_path, env={**environment, "PYTHONPATH": str(tmp_path / "unpacked")}, check=True,
    )  # fmt: skip
