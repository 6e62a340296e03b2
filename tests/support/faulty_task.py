"""Logistic regression whose clients raise, hang, or kill processes when a flag file says so."""

import dataclasses
import hashlib
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from tasks.mnist import MNIST_LOGISTIC, prepare
from tests.support.processes import parent

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
    if how == "kill the relay":  # on this Ray node there is one
        for process in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                of_relay = process.read_bytes().startswith(b"ray::Relay")
                if of_relay and parent(process.parent.name) == os.getppid():
                    os.kill(int(process.parent.name), signal.SIGKILL)
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
