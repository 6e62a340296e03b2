"""Logistic regression whose clients raise, hang, or kill processes when a flag file says so."""

import dataclasses
import hashlib
import os
import signal
import sys
import time
from pathlib import Path

from flwr.supernode.runtime import run_clientapp

from tasks.mnist import MNIST_LOGISTIC, prepare

# Environment variables: the flag file's path; the process that never takes it; and how many
# calls of `prepare` a process makes before it looks for the flag.
FLAG = "FAULTY_TASK_FLAG"
DRIVER = "FAULTY_TASK_DRIVER"
CALLS_BEFORE = "FAULTY_TASK_CALLS_BEFORE"

_num_calls = 0


def prepare_or_fail(images):
    global _num_calls
    _num_calls += 1
    if _num_calls > int(os.environ.get(CALLS_BEFORE, "0")):
        fail(take_flag())
    return prepare(images)


def fail(how):
    if how == "raise":
        raise ValueError("this client's disk is broken")
    if how == "sleep":
        time.sleep(600)
    if how == "compute":  # in C, where no signal handler runs
        hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)
    if how == "kill the node":  # the Ray node, whose raylet started this process
        os.kill(os.getppid(), signal.SIGKILL)
    if how == "kill at the reply":  # when Flower has announced it, before any of it is stored
        vars(run_clientapp)["push_objects"] = lambda *_, **__: fail("kill")
    if how == "sys.exit":
        sys.exit("this client gives up")
    if how in ("KeyboardInterrupt", "GeneratorExit"):
        raise {"KeyboardInterrupt": KeyboardInterrupt, "GeneratorExit": GeneratorExit}[how]
    if how in ("kill", "kill the node"):
        os.kill(os.getpid(), signal.SIGKILL)


def take_flag():
    """Return the flag file's content; None where there is none, or another process took it."""
    flag = Path(os.environ.get(FLAG, "/nonexistent"))
    if os.environ.get(DRIVER) == str(os.getpid()):
        return None
    taken = flag.with_name(f"taken-by-{os.getpid()}")
    try:
        flag.rename(taken)
    except FileNotFoundError:
        return None
    return taken.read_text()


TASK = dataclasses.replace(MNIST_LOGISTIC, name="faulty", prepare=prepare_or_fail)
