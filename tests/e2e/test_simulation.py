"""`python simulation.py` as a person runs it: a process, its output and its exit status."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.documents import examples

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow


def run(*arguments):
    command = [sys.executable, str(ROOT / "simulation.py"), *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)


def test_main_command_learns_on_the_embedded_digits(tmp_path):
    done = run(
        "run", "--data-source", "embedded", "--num-server-rounds", "40", "--run-dir", str(tmp_path)
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    (folder,) = tmp_path.iterdir()
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["best-accuracy"] >= 0.85
    assert summary["rejected-replies"] == 0
    assert {path.name for path in folder.glob("*.png")} == {
        "accuracy.png", "accuracy-bits.png", "loss.png",
    }  # fmt: skip
    assert re.search(r"round +40/40 +accuracy 0\.8", done.stdout)
    assert str(folder) in done.stdout


def test_installed_program_finds_a_strategy_in_the_working_directory(tmp_path):
    (tmp_path / "fedavgm.py").write_text(examples(ROOT / "README.md")["fedavgm.py"])
    command = [
        str(Path(sys.executable).parent / "fedavg"), "run", "--strategy", "fedavgm:FedAvgM",
        "--task", "mnist-logistic", "--data-source", "embedded", "--num-server-rounds", "2",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "runs").iterdir()
    assert json.loads((folder / "summary.json").read_text())["rejected-replies"] == 0
