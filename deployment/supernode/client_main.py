"""The process of a message: Flower's ClientApp, in a process that was forked for it."""

import logging
import multiprocessing
import os
import pickle
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from flwr.app import RecordDict
from flwr.common.constant import APP_DIR, FAB_HASH_TRUNCATION
from flwr.supercore.utils import get_flwr_home
from flwr.supernode.runtime import run_clientapp as module

from deployment.supernode import end_with_parent

# This package: a run may bring one of the same name.
OWN = __name__.partition(".")[0]


def run(address: str, token: str, parent_pid: int, states: list[str]) -> None:
    """Handle one message in this process, which was forked from the fork server, and end it.

    Args:
        address: The SuperNode's.
        token: The task's.
        parent_pid: The SuperNode's process.
        states: The files of the client's state, before this message and after it.
    """
    end_with_parent()
    os.setpgid(0, 0)  # so that what the client starts is ended with it
    reset_after_fork()
    run_clientapp(address, token, parent_pid, states)


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


def run_clientapp(address: str, token: str, parent_pid: int, states: list[str]) -> None:
    """Handle a message, as Flower's `flwr-clientapp` does; ends by `SystemExit`.

    Two things differ. The app is stored as a whole or not at all. And the client's state is in a
    file: Flower sends it in a protobuf, which takes ten times its memory, and only once the reply
    is sent, for at most 5 s, after which it would be lost.
    """
    own = vars(module)
    pull, push = own["pull_task_input"], own["push_message"]

    def pull_task_input(client: Any) -> Any:
        message, context, *others = pull(client)
        with Path(states[0]).open("rb") as file, suppress(EOFError):  # of an empty file
            context.state = pickle.load(file)  # noqa: S301 - a client's, of this device
        return message, context, *others

    def push_message(client: Any, message: Any, context: Any) -> None:
        write_state(context.state, Path(states[1]))
        context.state = RecordDict()
        push(client, message, context)

    own["pull_task_input"], own["push_message"] = pull_task_input, push_message
    own["install_from_fab"] = install_atomically(own["install_from_fab"])
    sys.argv = ["flwr-clientapp"]  # Flower looks at the program's name when it ends
    module.run_clientapp(address, token, insecure=True, parent_pid=parent_pid)


def write_state(state: RecordDict, path: Path) -> None:
    """Write the client's state to a file, which is empty where that fails."""
    try:
        with path.open("wb") as file:
            pickle.dump(state, file)
    except OSError as failure:
        os.truncate(path, 0)
        text = "the client's state could not be stored, so its next round starts without it: %s"
        logging.getLogger("flwr").error(text, failure)


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
