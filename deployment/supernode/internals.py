"""What this package changes in Flower: values and functions that it neither documents nor offers.

In a SuperNode:
* the pauses of its loop, which are literals: 3 s between looks for a message and 0.5 s between
  looks for the reply;
* `_pull_and_store_message`, which must clean up where the run ends meanwhile.

In its SuperExec: the executor, which is ours.

In a client's process:
* the default pauses of `pull_and_inflate_object_from_tree`, 1 s and more before an array that has
  not arrived is asked for again;
* `pull_task_input` and `push_message`, to learn when the message expires and when the reply is on
  its way; the client that the first is given finds nothing where it comes before its message;
* `register_signal_handlers` and `push_task_output`, to hand in the client's state however long that
  takes;
* `install_from_fab`, which takes a part of an app for the whole.

Flower has no setting for any of them.
`deployment.flower_parts` says whether this Flower has them. Where it has not, nothing here is used;
so all of Flower's parts are imported where they are used.
"""

import logging
import os
import shutil
import sys
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, cast

# Seconds between the looks of a SuperNode for its client's reply (in its own memory), and the
# fewest between those for a message (a signed request).
REPLY_POLL = 0.05
MESSAGE_POLL = 0.3
# The fewest seconds between a SuperExec's looks for a task, each a request to its SuperNode; and
# the most, which is how often Flower's looks.
TASK_POLL, FLOWER_TASK_POLL = 0.05, 1.0
# The first and the longest pause of a client before it asks its SuperNode again for an object. The
# number of tries is not bounded: Flower's bound is made for longer pauses.
PULLS = {"initial_backoff": 0.05, "backoff_cap": 0.2, "max_tries_per_object": None}
# Seconds after which a client believes that there is no message for it.
MESSAGE_WAIT = 10.0

_FLOWERS_MESSAGE_PAUSE, _FLOWERS_REPLY_PAUSE = 3, 0.5


def run_supernode(arguments: list[str]) -> None:
    """Run Flower's SuperNode with these options in this process; it ends by `SystemExit`."""
    from flwr.supernode import start_client_internal
    from flwr.supernode.cli.flower_supernode import flower_supernode

    own = vars(start_client_internal)
    own["time"] = SimpleNamespace(sleep=Pauses().sleep)
    receive = own["_pull_and_store_message"]

    def receive_or_clean_up(**options: Any) -> int | None:
        for name in ("pull_object", "confirm_message_received"):
            options[name] = _with_ordinary_error(options[name])
        return cast("int | None", receive(**options))

    own["_pull_and_store_message"] = receive_or_clean_up
    sys.argv = ["flower-supernode", *arguments]
    flower_supernode()


def _with_ordinary_error(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function, with an ordinary error where the message's run has ended.

    Flower's is a `BaseException`, which skips what `_pull_and_store_message` does when it fails:
    the message and its task would stay, and block the messages of later runs.
    """
    from flwr.supercore.run import RunNotRunningException

    def call(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except RunNotRunningException as error:
            raise RuntimeError("the run has ended") from error

    return call


def pause(since: float, shortest: float, longest: float) -> float:
    """Return the seconds until the next look for something that comes often, or not for long.

    They are a tenth of the time since it last came: so looking costs little, and adds at most a
    tenth.

    Args:
        since: When it last came, by `time.monotonic`.
        shortest: The fewest.
        longest: The most.
    """
    return min(max((time.monotonic() - since) / 10, shortest), longest)


class Pauses:
    """The pauses of a SuperNode's loop, shorter than Flower's where it is in a run."""

    def __init__(self) -> None:
        self._last_message = time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Sleep for as long as this pause of Flower's is to last."""
        if seconds == _FLOWERS_REPLY_PAUSE:
            self._last_message = time.monotonic()
            seconds = REPLY_POLL
        elif seconds == _FLOWERS_MESSAGE_PAUSE:
            seconds = pause(self._last_message, MESSAGE_POLL, _FLOWERS_MESSAGE_PAUSE)
        time.sleep(seconds)


def run_superexec(executor: Any, address: str, secret: bytes, parent_pid: int) -> None:
    """Run Flower's SuperExec with this executor; it ends by `SystemExit`.

    Args:
        executor: Has the methods of `flwr.supercore.superexec.executor.types.Executor`.
        address: The SuperNode's, on the loopback device: there is no TLS.
        secret: What signs requests for tasks; the SuperNode has the same.
        parent_pid: The process at whose end this one is to end.
    """
    from flwr.supercore.superexec import run_superexec as module
    from flwr.supercore.utils import disable_process_dumping

    # Flower's variable for the pause between two looks; the executor adds its own.
    os.environ["FLWR_SUPEREXEC_TASK_POLL_INTERVAL"] = str(TASK_POLL)
    # As in Flower's own flower-superexec: the secret is not to be read from this process's memory.
    disable_process_dumping(strict=False)
    vars(module)["get_executor"] = lambda *_, **__: executor
    module.run_superexec(
        address, insecure=True, superexec_auth_secret=secret, parent_pid=parent_pid
    )


def run_clientapp(
    address: str,
    token: str,
    parent_pid: int,
    on_message: Callable[[Any], None],
    on_reply: Callable[[], None],
) -> None:
    """Handle a message, as Flower's `flwr-clientapp` does; ends by `SystemExit`.

    Args:
        address: The SuperNode's.
        token: The task's.
        parent_pid: The process at whose end this one is to end.
        on_message: Is called with the message when it is there, before the app is loaded.
        on_reply: Is called before the reply is sent.
    """
    from flwr.supernode.runtime import run_clientapp as module

    own = vars(module)
    own["pull_and_inflate_object_from_tree"].__kwdefaults__.update(PULLS)
    pull_task_input, push_message = own["pull_task_input"], own["push_message"]

    def pull(client: Any) -> Any:
        client.PullMessages = _until_there(client.PullMessages)
        found = pull_task_input(client)
        on_message(found[0])
        return found

    def push(client: Any, message: Any, context: Any) -> None:
        on_reply()
        push_message(client, message, context)

    own["pull_task_input"], own["push_message"] = pull, push
    own["install_from_fab"] = install_atomically(own["install_from_fab"])
    _hand_in_without_limit(own)
    sys.argv = ["flwr-clientapp"]  # Flower looks at the program's name when it ends
    module.run_clientapp(address, token, insecure=True, parent_pid=parent_pid)


def _until_there(pull: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return the call for a message, which is repeated while there is none yet.

    A SuperNode makes the task before it stores the message. Flower's clients, which take seconds to
    start, never ask in between; if one did, it would fail, and its SuperNode would wait forever.
    """

    def call(request: Any) -> Any:
        deadline = time.monotonic() + MESSAGE_WAIT
        while not (response := pull(request)).messages_list and time.monotonic() < deadline:
            time.sleep(PULLS["initial_backoff"] or 0)
        return response

    return call


def _hand_in_without_limit(own: dict[str, Any]) -> None:
    """Have a client hand in its state before Flower's limit of 5 s for what is done at its exit.

    A state that takes longer would be lost, and nothing would say so.

    Args:
        own: The names of Flower's module of clients.
    """
    from flwr.supercore.exit import add_exit_handler

    register, push_task_output = own["register_signal_handlers"], own["push_task_output"]

    def register_unlimited(*, exit_handlers: list[Callable[[], None]], **options: Any) -> None:
        register(**options)
        for handler in exit_handlers:
            add_exit_handler(handler, run_before_force_exit=True)

    def push_or_log(**options: Any) -> None:
        try:
            push_task_output(**options)
        except Exception as failure:  # protobuf's for more than 2 GB; Flower would say nothing
            text = "the client's state could not be stored, so its next round starts without it: %s"
            logging.getLogger("flwr").error(text, failure)

    own["register_signal_handlers"], own["push_task_output"] = register_unlimited, push_or_log


def install_atomically(install: Callable[..., Path]) -> Callable[..., None]:
    """Return the function that stores a run's app, so that it stores all of it or nothing.

    Flower's takes a folder that exists for the app, even if the disk was full when it was written,
    or the process was killed: all later runs of that app would fail.
    """
    from flwr.common.constant import APP_DIR, FAB_HASH_TRUNCATION
    from flwr.supercore.utils import get_flwr_home

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


def failure_reply(message: Any, reason: str) -> bytes:
    """Return the reply to a message whose process ended, for `send_failure`.

    To be made by the process that has the message.
    """
    from flwr.app import Error, Message
    from flwr.common.constant import ErrorCode
    from flwr.common.serde import message_to_proto

    reply = Message(Error(ErrorCode.CLIENT_APP_CRASHED, reason), reply_to=message)
    return cast("bytes", message_to_proto(reply).SerializeToString())


def send_failure(address: str, token: str, reply: bytes) -> None:
    """Send what `failure_reply` made, and say that the task failed.

    Raises:
        Exception: The SuperNode does not take it, for example because the task is over.
    """
    from flwr.common.constant import SubStatus
    from flwr.common.serde import message_from_proto
    from flwr.proto.message_pb2 import Message
    from flwr.supercore.interceptors import (
        RuntimeTokenHttpInterceptor,
        RuntimeVersionHttpInterceptor,
    )
    from flwr.supercore.runtime import RuntimeHttpClient
    from flwr.supernode.runtime.run_clientapp import push_message, push_task_output

    interceptors: list[Any] = [
        RuntimeVersionHttpInterceptor(component_name="flwr-clientapp"),
        RuntimeTokenHttpInterceptor(token),
    ]
    message = message_from_proto(Message.FromString(reply))
    # Of its context Flower's function reads these two.
    context: Any = SimpleNamespace(
        node_id=message.metadata.src_node_id, run_id=message.metadata.run_id
    )
    with RuntimeHttpClient.from_server_address(address, True, None, interceptors) as client:
        push_message(client, message, context)
        push_task_output(client, None, SubStatus.FAILED, message.error.reason or "")
