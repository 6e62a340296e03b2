"""What a client tells its executor, and that it is like a new Python but for its imports."""

import json
import sys
import time

import pytest

from deployment.supernode.executor import deadline
from tests.support.documents import ROOT
from tests.support.processes import succeed

# Two clients of a fork server, and what they draw and find.
TWO_CLIENTS = """
import json, multiprocessing, random, sys

def child(sender):
    from deployment.supernode.client_process import become_like_new
    import numpy as np, torch
    become_like_new()
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


@pytest.mark.parametrize("ahead", [-3600, -300, 0, 9.9])
def test_fresh_message_expires_its_ttl_after_its_client_started_whatever_the_clock(ahead):
    started = time.monotonic()
    found = deadline(time.time() - ahead, 40, started)
    assert found - started == pytest.approx(40, abs=1)


def test_message_that_was_old_when_its_client_started_expires_earlier():
    found = deadline(time.time() - 35, 40, time.monotonic())
    assert found - time.monotonic() == pytest.approx(15, abs=1)


@pytest.fixture(scope="module")
def clients(tmp_path_factory):
    program = tmp_path_factory.mktemp("clients") / "two_clients.py"
    program.write_text(TWO_CLIENTS)
    return json.loads(succeed([sys.executable, program], cwd=ROOT).stdout)


def test_client_has_no_module_that_a_run_may_bring(clients):
    assert [modules for modules, _, _ in clients] == [[], []]


def test_clients_draw_other_random_numbers(clients):
    first, second = (draws for *_, draws in clients)
    assert all(one != other for one, other in zip(first, second, strict=True))


def test_client_starts_processes_of_its_own_in_the_default_way(clients):
    import multiprocessing

    assert {method for _, method, _ in clients} == {multiprocessing.get_start_method()}


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
