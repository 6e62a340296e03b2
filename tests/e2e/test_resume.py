"""A simulation that is killed again and again ends in the result of an undisturbed run."""

import pickle
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.documents import ROOT
from tests.support.processes import until
from tests.support.run_folders import assert_model, read_history

pytestmark = pytest.mark.long

NUM_KILLS = 20
JOB = [
    "--task", "mnist-logistic", "--data-source", "embedded", "--num-clients", "20",
    "--fraction-train", "0.5", "--strategy", "stc", "--local-steps", "1", "--momentum", "0.5",
    "--evaluate-every", "100", "--target", "none", "--num-server-rounds", "600",
    "--checkpoint-every", "3",
]  # fmt: skip


@pytest.fixture
def ray_address(processes):
    """A Ray cluster that all runs join, so that none has to start Ray."""
    return processes.ray_head(cpus=2)


def start(processes, address, *arguments):
    return subprocess.Popen(
        [sys.executable, "simulation.py", *arguments, "--ray-address", address],
        cwd=ROOT, env=processes.environment,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def finish(run):
    output = run.communicate(timeout=300)[0]
    assert run.returncode == 0, output


def checkpoint_round(folder):
    """Return the round of the folder's checkpoint, -1 where there is none."""
    try:
        _, state = pickle.loads((folder / "checkpoint").read_bytes()[:-32])
        return state.history[-1].round
    except FileNotFoundError:
        return -1


def run_folder(run_dir):
    return next(iter(Path(run_dir).glob("*")), Path(run_dir) / "none")


@pytest.mark.timeout(1200)
def test_run_killed_at_random_points_ends_in_the_same_model(processes, ray_address, tmp_path):
    finish(start(processes, ray_address, "run", *JOB, "--run-dir", str(tmp_path / "whole")))

    rng = random.Random(7)
    killed, rounds = tmp_path / "killed", []
    for kill in range(NUM_KILLS):
        folder = run_folder(killed)
        before = checkpoint_round(folder)
        job = ["resume", str(folder)] if before >= 0 else ["run", *JOB, "--run-dir", str(killed)]
        run = start(processes, ray_address, *job)
        # Every fifth is killed as it starts, the others after some rounds, at any point of one.
        if kill % 5 == 4:
            time.sleep(rng.uniform(0, 5))
        else:
            progressed = until(lambda b=before: checkpoint_round(run_folder(killed)) > b, 120)
            assert progressed, run.communicate()[0]
            time.sleep(rng.uniform(0, 0.3))
        processes.kill([run.pid, *processes.living("ray::Worker")])
        run.communicate(timeout=60)
        rounds.append(checkpoint_round(run_folder(killed)))
    assert len(set(rounds)) > NUM_KILLS / 2
    assert rounds == sorted(rounds)

    finish(start(processes, ray_address, "resume", str(run_folder(killed))))
    ours, whole = run_folder(killed), run_folder(tmp_path / "whole")
    assert_model(ours, whole)
    lines = [[{**line, "seconds": 0} for line in read_history(folder)] for folder in (ours, whole)]
    records, expected = lines
    assert records == expected
