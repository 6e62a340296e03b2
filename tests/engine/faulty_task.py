"""Logistic regression whose clients raise, or kill their process, on demand."""

import dataclasses
import os
import signal
from pathlib import Path

from tasks.mnist import MNIST_LOGISTIC, prepare

FLAG = "FAULTY_TASK_FLAG"
DRIVER = "FAULTY_TASK_DRIVER"


def prepare_or_die(images):
    flag = Path(os.environ.get(FLAG, "/nonexistent"))
    if flag.is_file() and os.environ[DRIVER] != str(os.getpid()):
        what = flag.read_text()
        flag.unlink()
        if what == "raise":
            raise ValueError("this client's disk is broken")
        if what == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
    return prepare(images)


TASK = dataclasses.replace(MNIST_LOGISTIC, name="faulty", prepare=prepare_or_die)
