"""`flwr build` and `flwr run` with a real SuperLink, as the README shows them.

`flwr run` exits with 0 even when the run fails, so the outcome is asked of `flwr ls`.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent

pytestmark = pytest.mark.slow

# 100 clients, but few rounds and small work: the engine's own costs dominate.
KEYS = {"data-source": "embedded", "num-server-rounds": 3, "evaluate-every": 3, "seed": 7}


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """A Flower home and a port of the test's own, so that no other SuperLink takes the run."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    yield {
        **os.environ,
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "FLWR_HOME": str(tmp_path_factory.mktemp("flwr")),
        "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": str(port),
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "FLWR_TELEMETRY_ENABLED": "0",
    }
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = process.read_bytes().decode().split("\0")
        except OSError:
            continue
        if any("flower-superlink" in word for word in words) and str(port) in words:
            os.kill(int(process.parent.name), signal.SIGTERM)


def flwr(environment, *arguments):
    return subprocess.run(
        [str(BIN / "flwr"), *arguments],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=400, check=True,
    )  # fmt: skip


def run_app(environment, keys, supernodes):
    """Run the app; return what it printed and the run as `flwr ls` knows it."""
    pairs = [f"{key}='{v}'" if isinstance(v, str) else f"{key}={v}" for key, v in keys.items()]
    federation = f"num-supernodes={supernodes} client-resources-num-cpus=1"
    done = flwr(
        environment, "run", ".", "--stream", "--federation-config", federation,
        "-c", " ".join(pairs),
    )  # fmt: skip
    newest = json.loads(flwr(environment, "ls", "--format", "json").stdout)["runs"][0]
    return done.stdout + done.stderr, newest


# Enough rounds that clients come back: their residuals and their copies of the model then matter.
STC = {"strategy": "stc", "local-steps": 1, "batch-size": 20, "fraction-train": 0.3}


@pytest.mark.parametrize(
    "changes",
    [{}, {**STC, "num-server-rounds": 8, "evaluate-every": 8}],
    ids=["fedavg", "stc"],
)
def test_the_same_seed_ends_in_the_same_model_as_simulation_py(environment, tmp_path, changes):
    keys = {**KEYS, **changes}
    shown, status = run_app(environment, {**keys, "run-dir": str(tmp_path / "flwr")}, 100)
    assert status["status"] == "finished:completed", shown
    (folder,) = (tmp_path / "flwr").iterdir()
    assert f"results: {folder}" in shown
    assert "embedded MNIST subset" in shown
    assert {path.name for path in folder.iterdir()} >= {
        "history.jsonl", "summary.json", "model.safetensors", "accuracy.png", "accuracy-bits.png",
        "loss.png",
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


def test_the_bundle_holds_the_app_and_nothing_else(environment, tmp_path):
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
    packages = {name for name in tracked if name.split("/")[0] in APP and name.endswith(".py")}
    assert names >= packages
    assert not {name for name in names if name.startswith(("tests", "docs", "benchmarks"))}
    assert size < 1_000_000
    # It loads from the bundle alone.
    subprocess.run(
        [sys.executable, "-P", "-c", "import fedavg_app.server_app, fedavg_app.client_app as c;"
         f"assert c.__file__.startswith({str(tmp_path / 'unpacked')!r}), c.__file__"],
        cwd=tmp_path, env={**environment, "PYTHONPATH": str(tmp_path / "unpacked")}, check=True,
    )  # fmt: skip


APP = ("fedavg_app", "strategies", "tasks")
