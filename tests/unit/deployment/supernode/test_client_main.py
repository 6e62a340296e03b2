"""Warm clients: what they find, when they expire, and how often their SuperNode looks for work."""

import json
import multiprocessing
import sys
import time

import pytest

from deployment.supernode.client_process import deadline
from deployment.supernode.message_loop import pause
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
    from deployment.supernode import client_process
    context = client_process._CONTEXT
    found = []
    for _ in range(2):
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=child, args=(sender,))
        process.start()
        found.append(receiver.recv())
        process.join()
    print("found:", json.dumps(found))
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
    assert "Clients start warm, after " in done.stdout + done.stderr
    modules, methods, draws = zip(*json.loads(done.stdout.rpartition("found:")[2]), strict=True)
    assert modules == ([], [])
    assert set(methods) == {multiprocessing.get_start_method()}
    assert all(ours != other for ours, other in zip(*draws, strict=True))


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


@pytest.mark.parametrize(("idle", "seconds"), [(0, 0.3), (4, 0.4), (20, 2), (3600, 3)])
def test_supernode_in_a_run_looks_for_messages_often_and_else_as_often_as_flowers(idle, seconds):
    assert pause(idle) == pytest.approx(seconds)
