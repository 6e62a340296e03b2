"""Logistic regression whose clients raise, hang, or kill their process, on demand."""

import dataclasses
import hashlib
import os
import signal
import time
from pathlib import Path

from tasks.mnist import MNIST_LOGISTIC, prepare

FLAG = "FAULTY_TASK_FLAG"
DRIVER = "FAULTY_TASK_DRIVER"


def prepare_or_die(images):
    flag = Path(os.environ.get(FLAG, "/nonexistent"))
    if os.environ.get(DRIVER) != str(os.getpid()) and (what := take(flag)):
        if what == "raise":
            raise ValueError("this client's disk is broken")
        if what == "sleep":
            time.sleep(600)
        if what == "compute":  # in C, where no signal is looked at
            hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)
        if what == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
    return prepare(images)


def take(flag):
    """Return what the flag says to the one process that gets hold of it, None to all others."""
    taken = flag.with_name(f"taken-by-{os.getpid()}")
    try:
        flag.rename(taken)
    except FileNotFoundError:
        return None
    return taken.read_text()


TASK = dataclasses.replace(MNIST_LOGISTIC, name="faulty", prepare=prepare_or_die)
