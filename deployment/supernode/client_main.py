"""The process of a message: Flower's ClientApp, in a process that was forked for it."""

import logging
import multiprocessing
import os
import shutil
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from flwr.common.constant import APP_DIR, FAB_HASH_TRUNCATION
from flwr.supercore.exit import exit as flowers_exit
from flwr.supercore.utils import get_flwr_home
from flwr.supernode.runtime import run_clientapp as module

from deployment.supernode import end_with_parent

# This package: a run may bring one of the same name.
OWN = __name__.partition(".")[0]


def run(address: str, token: str, parent_pid: int) -> None:
    """Handle one message in this process, which was forked from the fork server, and end it.

    Args:
        address: The SuperNode's.
        token: The task's.
        parent_pid: The SuperNode's process.
    """
    end_with_parent()
    os.setpgid(0, 0)  # so that what the client starts is ended with it
    reset_after_fork()
    run_clientapp(address, token, parent_pid)


def reset_after_fork() -> None:
    """Make a forked process like a new Python, except for what is imported.

    The random generators that were seeded in the fork server get new seeds (Python reseeds its own
    at a fork): otherwise all messages would draw the same numbers. What a client starts by
    `multiprocessing` is started in the default way again. This package's modules are forgotten,
    since Python would take them in place of a run's own of these names.
    """
    import numpy as np
    import torch

    np.random.seed()  # noqa: NPY002 - the generator of those who use this one
    torch.seed()
    multiprocessing.set_start_method(None, force=True)
    for name in list(sys.modules):
        if name.partition(".")[0] == OWN:
            del sys.modules[name]


def run_clientapp(address: str, token: str, parent_pid: int) -> None:
    """Handle a message, as Flower's `flwr-clientapp` does; ends by `SystemExit`.

    Two things differ. The app is stored as a whole or not at all. And the client's state is handed
    in however long that takes: Flower gives 5 s to all that is done at a client's exit, and a state
    that takes longer would be lost, of which nothing would tell.
    """
    own = vars(module)
    push_task_output = own["push_task_output"]

    def push_or_log(**options: Any) -> None:
        try:
            push_task_output(**options)
        except Exception as failure:  # protobuf's for more than 2 GB; Flower would say nothing
            text = "the client's state could not be stored, so its next round starts without it: %s"
            logging.getLogger("flwr").error(text, failure)

    vars(flowers_exit)["FORCE_EXIT_TIMEOUT_SECONDS"] = 1e9
    own["push_task_output"] = push_or_log
    own["install_from_fab"] = install_atomically(own["install_from_fab"])
    sys.argv = ["flwr-clientapp"]  # Flower looks at the program's name when it ends
    module.run_clientapp(address, token, insecure=True, parent_pid=parent_pid)


def install_atomically(install: Callable[..., Path]) -> Callable[..., None]:
    """Return the function that stores a run's app, so that it stores all of it or nothing.

    Flower's takes a folder that exists for the app, even if the disk was full when it was written,
    or the process was killed: all later runs of that app would fail.
    """

    def store(content: bytes, **options: Any) -> None:
        apps = get_flwr_home() / APP_DIR
        if any(apps.glob(f"*.{sha256(content).hexdigest()[:FAB_HASH_TRUNCATION]}")):
            return
        try:
            apps.mkdir(parents=True, exist_ok=True)
            with TemporaryDirectory(dir=apps) as folder:
                stored = install(content, Path(folder), **options)
                stored.rename(apps / stored.name)
        except OSError as error:  # shutil's has a list of (source, destination, reason)
            text = error.args[0][0][2] if isinstance(error, shutil.Error) else str(error)
            why = text.partition(": '")[0]  # without the files
            raise OSError(f"the app cannot be stored in {apps}: {why}; free some space") from None

    return store
