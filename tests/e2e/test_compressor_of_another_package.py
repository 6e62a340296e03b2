"""A compressor of a package outside the repository: `flwr run` by its path, and the contract."""

import json
import os
import subprocess
import sys

import pytest
from safetensors.numpy import load_file

from tests.support.documents import ROOT
from tests.support.flwr_run import local_superlink, run_app

pytestmark = pytest.mark.slow

COMPRESSOR = '''
"""The upper two bytes of every float32 (bfloat16, rounded towards zero)."""

from dataclasses import dataclass

import numpy as np

from strategies.compression.compressor import Compressor
from strategies.compression.decoded_update import DecodeError, DenseUpdate


@dataclass(frozen=True)
class UpperBytes(Compressor):
    kept: int = 2

    def encode(self, vector, layout, rng):
        whole = vector.astype("<f4").view(np.uint8).reshape(-1, 4)
        return whole[:, 4 - self.kept :].tobytes()

    def decode(self, data, layout):
        if len(data) != self.kept * layout.size:
            raise DecodeError(f"{len(data)} bytes for {layout.size} entries")
        whole = np.zeros((layout.size, 4), np.uint8)
        whole[:, 4 - self.kept :] = np.frombuffer(data, np.uint8).reshape(-1, self.kept)
        values = whole.view("<f4").reshape(-1).astype(np.float32)
        if not np.isfinite(values).all():
            raise DecodeError("a value is NaN or infinite")
        return DenseUpdate(values)

    def expected_bits(self, size):
        return 8.0 * self.kept * size
'''
TEST = """
from outside.codec import UpperBytes
from strategies.compression.testing import CompressorContract


class TestUpperBytes(CompressorContract):
    compressors = (UpperBytes(), UpperBytes(3))
    tolerance = 0.0
"""
BROKEN = """
from outside.codec import UpperBytes
from strategies.compression.testing import CompressorContract


class WithoutCheck(UpperBytes):
    def decode(self, data, layout):
        return super().decode(data[: self.kept * layout.size], layout)


class TestWithoutCheck(CompressorContract):
    compressors = (WithoutCheck(),)
"""
NUM_CLIENTS, NUM_ROUNDS = 4, 3
KEYS = {
    "task": "mnist-logistic", "data-source": "embedded", "num-clients": NUM_CLIENTS,
    "fraction-train": 1.0, "num-server-rounds": NUM_ROUNDS, "seed": 7, "strategy": "compressed",
    "strategy-args": "uplink = {name = 'outside.codec:UpperBytes', kept = 2}",
}  # fmt: skip


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """A folder for PYTHONPATH with the package, and its tests beside it."""
    folder = tmp_path_factory.mktemp("elsewhere")
    assert not folder.is_relative_to(ROOT)
    (folder / "outside").mkdir()
    (folder / "outside" / "__init__.py").touch()
    (folder / "outside" / "codec.py").write_text(COMPRESSOR)
    (folder / "test_codec.py").write_text(TEST)
    (folder / "test_broken.py").write_text(BROKEN)
    return folder


def run_tests(package, name):
    options = ["-q", "-p", "no:cacheprovider", "--rootdir", package]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, name],
        cwd=package, env=os.environ | {"PYTHONPATH": str(package)},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip


def test_package_keeps_the_contract(package):
    result = run_tests(package, "test_codec.py")
    assert result.returncode == 0, result.stdout + result.stderr
    assert " passed" in result.stdout
    assert "PytestUnknownMarkWarning" not in result.stdout


def test_package_that_breaks_the_contract_is_told_which_promise(package):
    result = run_tests(package, "test_broken.py")
    assert result.returncode == 1, result.stdout + result.stderr
    assert "test_truncated_and_extended_bytes_are_rejected" in result.stdout
    assert "bytes instead of" in result.stdout


def test_flwr_run_trains_with_it(package, tmp_path, tmp_path_factory):
    with local_superlink(tmp_path_factory.mktemp("flwr")) as environment:
        environment |= {"PYTHONPATH": str(package)}
        shown, status = run_app(environment, {**KEYS, "run-dir": str(tmp_path)}, NUM_CLIENTS)
    assert status["status"] == "finished:completed", shown
    (run,) = tmp_path.iterdir()
    history = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    entries = sum(array.size for array in load_file(run / "model.safetensors").values())
    assert [record["round"] for record in history] == list(range(NUM_ROUNDS + 1))
    assert history[-1]["accuracy"] > history[0]["accuracy"] + 0.3
    for record in history[1:]:
        assert not record["rejected"]
        assert record["theory_bits_up"] == NUM_CLIENTS * 16 * entries
        # What comes in addition: the head, metrics and names.
        assert 0 < record["bytes_up"] / NUM_CLIENTS - 2 * entries < 100
