"""A simulation that is killed again and again ends in the result of an undisturbed run."""

import random
import subprocess
import sys
import time

import pytest

from tests.support.documents import ROOT
from tests.support.processes import until
from tests.support.run_folders import assert_model, history_of, only_folder, read_history

pytestmark = pytest.mark.long

NUM_KILLS = 10
JOB = [
    "--task", "mnist-logistic", "--data-source", "embedded", "--num-clients", "20",
    "--fraction-train", "0.5", "--strategy", "stc", "--local-steps", "1", "--momentum", "0.5",
    "--evaluate-every", "100", "--target", "none", "--num-server-rounds", "300",
    "--checkpoint-every", "3",
]  # fmt: skip


@pytest.mark.timeout(1200)
def test_run_killed_at_random_points_ends_in_the_same_model(processes, tmp_path):
    address = processes.ray_head(cpus=2)  # which all runs join, so that none has to start Ray

    def start(*arguments):
        return subprocess.Popen(
            [sys.executable, "simulation.py", *arguments, "--ray-address", address],
            cwd=ROOT, env=processes.environment,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def finish(run):
        output = run.communicate(timeout=300)[0]
        assert run.returncode == 0, output

    def completed():
        return len(history_of(tmp_path / "killed"))

    finish(start("run", *JOB, "--run-dir", str(tmp_path / "whole")))
    rng, ends = random.Random(7), []
    for kill in range(NUM_KILLS):
        before = completed()
        if kill:
            run = start("resume", str(only_folder(tmp_path / "killed")))
        else:
            run = start("run", *JOB, "--run-dir", str(tmp_path / "killed"))
        # Every fifth is killed as it starts, the others after some rounds, at any point of one.
        if kill % 5 == 4:
            time.sleep(rng.uniform(0, 5))
        else:
            progressed = until(lambda n=before: completed() > n + 3, 120)
            assert progressed, run.communicate()[0]
            time.sleep(rng.uniform(0, 0.3))
        processes.kill([run.pid, *processes.living("ray::Worker")])
        run.communicate(timeout=60)
        ends.append(completed())
    assert len(set(ends)) > NUM_KILLS / 2
    ours, whole = (only_folder(tmp_path / name) for name in ("killed", "whole"))
    finish(start("resume", str(ours)))
    assert_model(ours, whole)
    records, expected = map(read_history, (ours, whole))
    assert [{**line, "seconds": 0} for line in records] == [
        {**line, "seconds": 0} for line in expected
    ]
