"""The processes of simulations on Ray: several nodes, signals, a full object store."""

import json
import os
import re
import signal
import subprocess
import sys

import pytest

from tests.support import faulty_task
from tests.support.documents import ROOT
from tests.support.machines import working_tree
from tests.support.processes import AS_IN_A_TERMINAL, ran, succeed, until
from tests.support.run_folders import history_of

pytestmark = pytest.mark.slow

SMALL = [
    "--data-source", "embedded", "--num-clients", "20", "--fraction-train", "0.5",
    "--target", "none",
]  # fmt: skip

LARGE_TASK = """
from dataclasses import replace
from torch import nn
from tasks.mnist import MNIST_LOGISTIC

def wide():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 11_000), nn.ReLU(), nn.Linear(11_000, 10))

TASK = replace(MNIST_LOGISTIC, model=wide)  # of 35 MB
"""


def simulate(
    processes, run_dir, *arguments, rounds, task="mnist-logistic", evaluate_every=10, cpus=None
):
    """Start a simulation, on these CPUs only if they are given; its output is a pipe."""
    command = [
        *AS_IN_A_TERMINAL, sys.executable, "simulation.py", "run", *SMALL, "--task", task,
        "--run-dir", str(run_dir), "--num-server-rounds", str(rounds), "--evaluate-every",
        str(evaluate_every), *arguments,
    ]  # fmt: skip
    if cpus:
        command = ["taskset", "--cpu-list", ",".join(map(str, cpus)), *command]
    return subprocess.Popen(
        command, cwd=ROOT, env=processes.environment, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def test_main_process_trains_no_large_model(processes, tmp_path):
    """Its clients' states would have to move to the workers: of 10^8 weights for 20 s."""
    (tmp_path / "large_task.py").write_text(LARGE_TASK)
    signs = tmp_path / "signs"
    paths = f"{tmp_path}{os.pathsep}{ROOT}"
    processes.environment |= {"SIGNS_OF_LIFE": str(signs), "PYTHONPATH": paths}
    mod = "--client-mods", "tests.support.client_mods:signs_of_life"
    run = simulate(
        processes, tmp_path, *mod, "--local-steps", "1", rounds=1, task="large_task:TASK"
    )
    output, _ = run.communicate(timeout=300)
    assert run.returncode == 0, output
    trained_by = {json.loads(line)["process"] for line in signs.read_text().splitlines()}
    assert trained_by
    assert run.pid not in trained_by


@pytest.mark.long
def test_run_continues_after_a_ray_node_is_lost(processes, tmp_path):
    """The second node and its worker die while they handle a message, and do not come back."""
    address = processes.ray_head(cpus=1)
    flag = tmp_path / "flag"
    flag.write_text("kill the node")
    # Only processes of the second node find the flag. There are at most 11 calls in a round.
    processes.environment |= {faulty_task.FLAG: str(flag), faulty_task.CALLS_BEFORE: "100"}
    processes.ray(f"--address={address}", "--num-cpus=1")
    del processes.environment[faulty_task.FLAG]

    run = simulate(
        processes, tmp_path, "--ray-address", address, "--strategy", "stc", "--local-steps", "1",
        rounds=600, evaluate_every=600, task="tests.support.faulty_task:TASK",
    )  # fmt: skip
    output, _ = run.communicate(timeout=400)
    assert run.returncode == 0, output
    assert len(processes.living("raylet/raylet")) == 1
    pattern = r"worker (\d) died: .*; it is replaced; clients [\d, ]+ have lost their"
    (number,) = re.findall(pattern, output)
    records = history_of(tmp_path)
    assert [record["round"] for record in records] == list(range(601))
    rejected = [reason for record in records for reason in record["rejected"].values()]
    assert any(f"worker {number} died: " in reason for reason in rejected)
    assert "the client lost its state; full model next round" in rejected
    last_rejected = max(record["round"] for record in records if record["rejected"])
    assert 10 <= last_rejected < 500  # all clients are resynchronized, on the node that is left
    assert records[-1]["accuracy"] > 0.5


@pytest.mark.parametrize(
    ("number", "to_all"),
    [
        (signal.SIGINT, True),
        pytest.param(signal.SIGTERM, False, marks=pytest.mark.long),  # test_sweep.py has it, too
        (signal.SIGKILL, False),
    ],
)
def test_no_process_is_left_after_a_signal(processes, tmp_path, number, to_all):
    """Ctrl-C reaches all processes of a terminal, kill only one."""
    run = simulate(processes, tmp_path, rounds=100_000)
    assert until(lambda: len(history_of(tmp_path)) > 5, 120)
    assert len(processes.living()) > 4
    (os.killpg if to_all else os.kill)(run.pid, number)
    try:
        output, _ = run.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        left = processes.commands()
        processes.kill()
        pytest.fail(f"still running: {left}\n{run.communicate()[0][-3000:]}")
    # A raylet that is killed cannot end Ray's agents; they look for it for a minute.
    but_for = "Agent" if number == signal.SIGKILL else "nothing"
    assert processes.gone(120, but_for=but_for), processes.commands()
    assert "Traceback" not in output
    if number == signal.SIGKILL:
        assert run.returncode == -signal.SIGKILL
        return
    assert run.returncode == 128 + number
    assert "received at time" not in output  # Ray's own report of a signal, before it aborts
    (folder,) = tmp_path.glob("*/summary.json")
    assert json.loads(folder.read_text())["status"] == "interrupted"
    if number == signal.SIGINT:
        assert output.count("interrupted") == 1


WHILE_RAY_STARTS = """
import os, signal, sys, time
import ray
from fedavg_app.ray_engine.ray_cluster import ray_cluster

signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
with ray_cluster("", 1, "auto", "cpu"):
    while not ray.is_initialized():
        time.sleep(0.1)
    time.sleep(2)  # Ray has started, and this thread is still busy with other things
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(60)
"""


def test_signal_while_ray_starts_is_handled_by_the_run_and_not_by_ray(processes):
    """Ray would print where every thread is, and abort."""
    done = ran([sys.executable, "-c", WHILE_RAY_STARTS], cwd=ROOT, env=processes.environment)
    assert (done.returncode, done.stdout, done.stderr) == (128 + signal.SIGTERM, "", "")
    assert processes.gone(120), processes.commands()


def test_run_that_may_use_one_cpu_has_one_worker(processes, tmp_path):
    """The driver's clients sleep, so that they leave the CPU to Ray's start."""
    processes.environment[faulty_task.FLAG] = str(tmp_path / "flag")
    mods = ("--client-mods", "tests.support.client_mods:busy")
    cpus = [min(os.sched_getaffinity(0))]
    run = simulate(processes, tmp_path, *mods, rounds=100_000, cpus=cpus)
    assert until(lambda: processes.living("ray::Worker"), 400)  # the first rounds need none
    now = len(history_of(tmp_path))
    assert until(lambda: len(history_of(tmp_path)) > now + 2, 120)
    assert len(processes.living("ray::Worker")) == 1
    run.terminate()
    run.communicate(timeout=120)


WITH_FULL_STORE = """
import sys
import numpy as np, ray
from fedavg_app.config import RunConfig
from fedavg_app.ray_engine.ray_grid import RayGrid
from fedavg_app.server.preparation import prepare
from fedavg_app.server_app import run

ray.init(num_cpus=2, include_dashboard=False, object_store_memory=80 * 2**20)
full = [ray.put(np.zeros(70 * 2**20, np.uint8))]
config = RunConfig(**{
    "task": "mnist-2nn", "data-source": "embedded", "num-clients": 100, "fraction-train": 1.0,
    "num-server-rounds": 2, "local-steps": 1, "run-dir": sys.argv[1],
})
with RayGrid(config.model_dump(by_alias=True), 100, 2) as grid:
    result = run(grid, prepare(config), grid.evaluation)
assert not any(metrics.rejected for metrics in result.history)
"""


def test_full_object_store_does_not_stop_a_run(processes, tmp_path):
    """80 MB of replies a round, and a store of 80 MB that is full."""
    words = [sys.executable, "-c", WITH_FULL_STORE, str(tmp_path)]
    succeed(words, cwd=ROOT, env=processes.environment)
    assert processes.gone(120), processes.commands()


WITH_RAY_OF_ITS_OWN = """
import sys
import ray
from fedavg_app import RunConfig, simulate

ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
keys = {"task": "mnist-logistic", "data_source": "embedded", "num_clients": 5}
result = simulate(RunConfig(**keys, num_server_rounds=2, run_dir=sys.argv[1]))
assert result.status == "finished"
assert ray.get(ray.remote(lambda: 3).remote()) == 3
"""


def test_ray_that_a_program_has_started_is_used_and_left_to_it(processes, tmp_path):
    command = [sys.executable, "-c", WITH_RAY_OF_ITS_OWN, str(tmp_path)]
    succeed(command, cwd=ROOT, env=processes.environment)


def test_workers_run_the_code_of_the_drivers_checkout(tmp_path):
    """Whatever package is installed: here the checkout's compressor fails on clients."""
    working_tree(tmp_path)
    with (tmp_path / "strategies" / "compression" / "floats.py").open("a") as file:
        file.write("\n\ndef fail(*_):\n    raise RuntimeError('of the checkout')\n")
        file.write("\n\nFloat16.encode = fail\n")
    done = ran(
        [
            sys.executable, "simulation.py", "run", *SMALL, "--strategy", "compressed",
            "--strategy-args", "uplink = 'float16', feedback = 'none'", "--num-server-rounds", "3",
        ],
        cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 1
    assert "RuntimeError: of the checkout" in done.stderr
