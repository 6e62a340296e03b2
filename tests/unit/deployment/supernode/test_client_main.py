"""Warm clients and their executor, and what of Flower they use: other versions do not fit."""

import json
import multiprocessing
import sys
import time

import pytest

from deployment.supernode import executor, internals
from deployment.supernode.executor import ForkingExecutor, deadline
from deployment.supernode.internals import Pauses
from tests.support.documents import ROOT
from tests.support.processes import succeed

# Two clients of a fork server, and what they draw and find.
TWO_CLIENTS = """
import json, multiprocessing, random, sys

def child(sender):
    from deployment.supernode.client_main import reset_after_fork
    import numpy as np, torch
    reset_after_fork()
    ours = ("deployment", "fedavg_app", "strategies", "tasks")
    sender.send((
        [n for n in sys.modules if n.partition(".")[0] in ours],
        multiprocessing.get_start_method(),
        [random.random(), np.random.rand(), torch.rand(1).item(), np.random.default_rng().random()],
    ))

if __name__ == "__main__":
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["deployment.supernode.preload", "__main__"])
    found = []
    for _ in range(2):
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=child, args=(sender,))
        process.start()
        found.append(receiver.recv())
        process.join()
    print(json.dumps(found))
"""


@pytest.mark.parametrize(
    ("age", "expires"), [(-3600, 40), (-300, 40), (0, 40), (9.9, 40), (35, 15)]
)
def test_message_expires_its_ttl_after_its_client_started_or_earlier_if_it_was_old(age, expires):
    """A wrong clock does not matter for a message that has just arrived."""
    started = time.monotonic()
    found = deadline(time.time() - age, 40, started)
    assert found - started == pytest.approx(expires, abs=1)


def test_client_has_no_module_of_a_run_and_draws_and_starts_processes_as_a_new_python(tmp_path):
    (tmp_path / "two_clients.py").write_text(TWO_CLIENTS)
    done = succeed([sys.executable, tmp_path / "two_clients.py"], cwd=ROOT)
    modules, methods, draws = zip(*json.loads(done.stdout), strict=True)
    assert modules == ([], [])
    assert set(methods) == {multiprocessing.get_start_method()}
    assert all(ours != other for ours, other in zip(*draws, strict=True))


@pytest.mark.slow
def test_fork_server_has_the_libraries():
    program = "from deployment.supernode import executor; executor.ForkingExecutor().warm_up()"
    done = succeed([sys.executable, "-c", program], cwd=ROOT)
    assert "Clients start warm, after " in done.stdout + done.stderr


@pytest.mark.parametrize(("idle", "seconds"), [(0, 0), (4, 0.4), (3600, 0.95)])
def test_idle_executor_waits_by_the_time_since_the_last_client(monkeypatch, idle, seconds):
    now, slept = [100.0], []
    monkeypatch.setattr(internals.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(executor.time, "sleep", slept.append)
    found = ForkingExecutor()
    now[0] += idle
    found.reconcile()
    assert slept == [pytest.approx(seconds)]


@pytest.mark.slow
def test_libraries_are_all_that_a_training_client_imports():
    from tests.unit.app.test_imports import CLIENT

    modules = "import deployment.supernode.preload, sys\nprint(*sys.modules)"
    programs = [modules, CLIENT, CLIENT]  # the first client fills the cache
    found = [
        set(succeed([sys.executable, "-c", program, "train"], cwd=ROOT).stdout.split())
        for program in programs
    ]
    ours = {"deployment", "fedavg_app", "strategies", "tasks"}
    missing = {name for name in found[-1] - found[0] if name.partition(".")[0] not in ours}
    # Small modules that several libraries bring are not worth an entry; whole libraries are.
    assert {name for name in missing if "." not in name} <= {"_cython_3_2_4"}


@pytest.mark.parametrize(
    ("pauses", "slept"),
    [
        ([(3600, 0.5), (0, 3)], [0.05, 0.3]),  # in a run: for its client's reply, and a message
        ([(3600, 3)], [3]),  # without a run, as often as Flower's
        ([(0, 0.5), (20, 3)], [0.05, 2]),  # a tenth of the time since its last message
        ([(0, 1.25)], [1.25]),  # a pause that it does not know
    ],
)
def test_supernode_in_a_run_looks_for_messages_and_replies_often(monkeypatch, pauses, slept):
    now, found = [1000.0], []
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", found.append)
    pausing = Pauses()
    for idle, seconds in pauses:
        now[0] += idle
        pausing.sleep(seconds)
    assert found == pytest.approx(slept)
