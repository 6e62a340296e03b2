"""RayGrid's processes: on several Ray nodes, interrupted, killed, without memory to share."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.engine.processes import Processes, until

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SMALL = [
    "--task", "mnist-logistic", "--data-source", "embedded", "--num-clients", "20",
    "--fraction-train", "0.5", "--evaluate-every", "10", "--target-accuracy", "0",
]  # fmt: skip


@pytest.fixture
def processes():
    with Processes() as started:
        yield started


def simulate(processes, runs, *arguments, rounds):
    command = [
        sys.executable, "simulation.py", "run", *SMALL, "--run-dir", str(runs),
        "--num-server-rounds", str(rounds), *arguments,
    ]  # fmt: skip
    return subprocess.Popen(
        command, cwd=ROOT, env=processes.environment, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def history(runs):
    files = list(Path(runs).glob("*/history.jsonl"))
    return [json.loads(line) for line in files[0].read_text().splitlines()] if files else []


def final_model(runs):
    (path,) = Path(runs).glob("*/model.safetensors")
    return load_file(path)


@pytest.fixture
def two_nodes(processes, tmp_path_factory):
    """Two Ray nodes of one CPU each; their sockets need short paths."""
    address = processes.ray_head(cpus=1)
    processes.ray(f"--address={address}", "--num-cpus=1")
    return address


def test_two_ray_nodes_give_the_same_as_one_and_survive_the_loss_of_one(
    processes, two_nodes, tmp_path
):
    joined = simulate(processes, tmp_path / "two", "--ray-address", two_nodes, rounds=10)
    assert joined.wait(120) == 0, joined.stdout.read()
    alone = simulate(processes, tmp_path / "one", rounds=10)
    assert alone.wait(120) == 0, alone.stdout.read()
    here, there = final_model(tmp_path / "one"), final_model(tmp_path / "two")
    assert all(np.array_equal(here[name], there[name]) for name in here)

    # The second node dies with its worker, and cannot come back: the first one does all.
    stc = ["--strategy", "stc", "--local-steps", "1"]
    run = simulate(processes, tmp_path / "lost", "--ray-address", two_nodes, *stc, rounds=1500)
    assert until(lambda: len(history(tmp_path / "lost")) > 20, 60)
    raylets = processes.living("raylet/raylet")
    assert len(raylets) == 2
    second = max(raylets)
    workers = [pid for pid in processes.living("ray::") if parent(pid) == second]
    processes.kill([second, *workers])
    assert run.wait(200) == 0, run.stdout.read()
    records = history(tmp_path / "lost")
    assert len(records) == 1501
    lost = {reason for record in records for reason in record["rejected"].values()}
    assert any("worker" in reason and "died" in reason for reason in lost)
    assert any("forgotten its model" in reason for reason in lost)
    assert records[-1]["accuracy"] > 0.5


def parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.parametrize(
    ("sent", "everyone"), [(signal.SIGINT, True), (signal.SIGTERM, False), (signal.SIGKILL, False)]
)
def test_nothing_is_left_behind_whatever_ends_the_run(processes, tmp_path, sent, everyone):
    """Ctrl-C reaches all processes of the terminal, kill only the one."""
    run = simulate(processes, tmp_path, rounds=100_000)
    assert until(lambda: len(history(tmp_path)) > 5, 60)
    assert len(processes.living()) > 4
    (os.killpg if everyone else os.kill)(run.pid, sent)
    try:
        output, _ = run.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        processes.kill()
        pytest.fail(f"still running: {run.stdout.read()[-3000:]}")
    # Ray's own agents sometimes outlive a raylet that had no time to end them.
    spared = "Agent" if sent == signal.SIGKILL else "nothing"
    assert processes.gone(60, but_for=spared), processes.living(but_not=spared)
    if sent == signal.SIGINT:
        assert run.returncode == 130
        assert output.rstrip().endswith("interrupted")
        assert "Traceback" not in output
        left = [p.name for p in Path(processes.environment["TMPDIR"]).glob("fedavg-app-*")]
        assert left == []
    else:
        assert run.returncode != 0


FULL = """
import sys
import numpy as np, ray
from fedavg_app.config import RunConfig
from fedavg_app.engine.grid import RayGrid
from fedavg_app.server_app import run

ray.init(num_cpus=2, include_dashboard=False, object_store_memory=80 * 2**20)
full = [ray.put(np.zeros(70 * 2**20, np.uint8))]
config = RunConfig(**{
    "task": "mnist-2nn", "data-source": "embedded", "num-clients": 100, "fraction-train": 1.0,
    "num-server-rounds": 2, "local-steps": 1, "run-dir": sys.argv[1],
}).model_dump(by_alias=True)
with RayGrid(config, 100, 2) as grid:
    outcome = run(grid, config, grid.evaluation)
assert not any(record.rejected for record in outcome.records)
"""


def test_a_full_object_store_does_not_matter(processes, tmp_path):
    """80 MB of replies a round and a store of 80 MB that is full."""
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)],
        cwd=ROOT, env=processes.environment, capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert processes.gone()
