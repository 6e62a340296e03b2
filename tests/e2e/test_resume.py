"""A run on Ray that is killed again and again ends as if it had not been."""

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.engine.processes import Processes, until

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
ROUNDS = 600
JOB = [
    "--task", "mnist-logistic", "--data-source", "embedded", "--num-clients", "20",
    "--fraction-train", "0.5", "--strategy", "stc", "--local-steps", "1", "--momentum", "0.5",
    "--evaluate-every", "100", "--target-accuracy", "0", "--num-server-rounds", str(ROUNDS),
    "--checkpoint-every", "3",
]  # fmt: skip


def start(processes, address, *arguments):
    return subprocess.Popen(
        [sys.executable, "simulation.py", *arguments, "--ray-address", address],
        cwd=ROOT, env=processes.environment,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def saved(folder):
    """Return the round of the folder's checkpoint."""
    try:
        return json.loads((folder / "checkpoint" / "manifest.json").read_text())["round"]
    except FileNotFoundError:
        return -1


def found(runs):
    return next(iter(Path(runs).glob("*")), Path(runs) / "none")


@pytest.fixture
def processes():
    with Processes() as started:
        yield started


@pytest.fixture
def ray_address(processes):
    """A Ray that stays while runs come and go, which spares each its start."""
    return processes.ray_head(cpus=2)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kills", [5, pytest.param(20, marks=pytest.mark.long)])
def test_killed_at_random_points_it_ends_in_the_same_model(processes, ray_address, tmp_path, kills):
    whole = start(processes, ray_address, "run", *JOB, "--run-dir", str(tmp_path / "whole"))
    output = whole.communicate(timeout=300)[0]
    assert whole.returncode == 0, output

    random_ = random.Random(7)
    runs, points = tmp_path / "killed", []
    for kill in range(kills):
        folder, before = found(runs), saved(found(runs))
        job = ["resume", str(folder)] if before >= 0 else ["run", *JOB, "--run-dir", str(runs)]
        run = start(processes, ray_address, *job)
        # Some are killed as they start, the others after some rounds, in whatever they are at.
        if kill % 5 == 4:
            time.sleep(random_.uniform(0, 5))
        else:
            assert until(lambda b=before: saved(found(runs)) > b, 120), run.communicate()[0]
            time.sleep(random_.uniform(0, 0.3))
        processes.kill([run.pid, *processes.living("ray::Worker")])
        run.communicate(timeout=60)
        points.append(saved(found(runs)))
    assert len(set(points)) > kills / 2
    assert points == sorted(points)

    last = start(processes, ray_address, "resume", str(found(runs)))
    output = last.communicate(timeout=300)[0]
    assert last.returncode == 0, output
    ours, theirs = (load_file(found(f) / "model.safetensors") for f in (runs, tmp_path / "whole"))
    for name, array in theirs.items():
        assert np.array_equal(ours[name], array), name
    histories = [
        [
            {**json.loads(line), "seconds": 0}
            for line in (found(folder) / "history.jsonl").read_text().splitlines()
        ]
        for folder in (runs, tmp_path / "whole")
    ]
    assert histories[0] == histories[1]
