"""The oldest Flower that is supported, and the nightly if it has what this package needs."""

import os
import subprocess
import sys
import zipfile

import pytest

from tests.support.deployment import Deployment
from tests.support.documents import ROOT
from tests.support.processes import succeed
from tests.support.run_folders import assert_model, simulated

pytestmark = pytest.mark.slow

KEYS = {"task": "mnist-logistic", "data-source": "embedded", "num-server-rounds": 2}


@pytest.fixture(params=["flwr==1.41.0", "flwr-nightly"])
def flower(request, tmp_path, monkeypatch):
    """Flower in a version that shadows the installed one; its requirement."""
    words = [sys.executable, "-m", "pip", "download", "--no-deps", "--pre", "-d", tmp_path]
    done = subprocess.run([*words, request.param], capture_output=True, text=True, timeout=120)
    wheels = list(tmp_path.glob("*.whl"))
    if not wheels:
        pytest.skip(f"pip cannot fetch it: {done.stderr[-200:]}")
    with zipfile.ZipFile(wheels[0]) as wheel:
        wheel.extractall(tmp_path / "flower")
    paths = [str(tmp_path / "flower"), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    return request.param


def test_other_version_trains_the_same_model_or_lacks_a_part_that_is_named(flower, tmp_path):
    parts = succeed([sys.executable, "-m", "deployment.flower_parts"], cwd=ROOT).stdout.splitlines()
    lacking = [line for line in parts if ": " in line]
    assert all("run: pip install 'flwr>=" in line for line in lacking)
    if lacking and flower == "flwr-nightly":
        pytest.skip("; ".join(lacking))
    assert not lacking

    keys = {**KEYS, "num-clients": 1, "fraction-train": 1.0}
    expected = simulated(tmp_path / "here", keys)
    with Deployment(tmp_path / "deployment", 1) as deployment:
        folder = deployment.train(tmp_path / "devices", **keys)
    assert_model(folder, expected)
