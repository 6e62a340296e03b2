"""Flower's SuperNode, whose loop has this package's clients reply to messages.

Flower's loop looks for a message every 3 s and makes a task of it, which a process of its own, the
SuperExec, asks for every second; meanwhile it looks every 0.5 s for the reply. Here the loop itself
starts the client of a message, when all of the message is there, and then waits for the reply.
Flower has no setting for any of this.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from tempfile import TemporaryFile
from types import SimpleNamespace
from typing import IO, Any, NoReturn, cast

from flwr.app import Error, Message
from flwr.common.constant import ErrorCode, SubStatus
from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
from flwr.supercore.run import RunNotRunningException
from flwr.supernode import start_client_internal
from flwr.supernode.cli.flower_supernode import flower_supernode
from flwr.supernode.runtime.run_clientapp import push_message, push_task_output
from flwr.supernode.servicer.runtime import runtime_handlers
from starlette.exceptions import HTTPException

from deployment.supernode.client_process import Client

# The fewest seconds between looks for a message, each a signed request, and the most: Flower's.
SHORTEST_PAUSE, LONGEST_PAUSE = 0.3, 3.0
# Flower's AgentApps are taken, too: their client fails, and the run hears why.
TYPES = [TaskType.CLIENT_APP, TaskType.AGENT_APP]
# What the server is told of a client that ended without a reply.
REASON = "the client's process was killed, crashed, or was ended at its message's expiry"


def run_supernode(arguments: list[str], address: str) -> None:
    """Run Flower's SuperNode with these options in this process; it ends by `SystemExit`.

    Args:
        arguments: The options.
        address: Where clients reach it, on the loopback device.
    """
    loop = MessageLoop(address)
    sys.argv = ["flower-supernode", *arguments]
    try:
        flower_supernode()
    finally:
        if loop.client is not None:
            loop.client.kill("its SuperNode ends")


class MessageLoop:
    """Takes the place of what Flower's loop calls to receive a message and to send the reply.

    Args:
        address: Where clients reach the SuperNode.

    Attributes:
        client: That of the last message.
    """

    def __init__(self, address: str) -> None:
        loop, handlers = vars(start_client_internal), vars(runtime_handlers)
        self._receive, self._send = loop["_pull_and_store_message"], loop["_push_messages"]
        self._take_task, self._store_reply = handlers["acquire_task"], handlers["push_messages"]
        loop["_pull_and_store_message"], loop["_push_messages"] = self.receive, self.send
        handlers["push_messages"], handlers["acquire_task"] = self.store_reply, _refuse
        self._address = address
        self._message: Any = None
        self._last_message = time.monotonic()
        self._states: dict[int, IO[bytes]] = {}  # of clients, by the series of their runs
        self.client: Client | None = None

    def receive(self, **options: Any) -> int:
        """Wait for a message, and receive all of it; return its run's id.

        The client of the message before is to have handed in its state, and to have ended.
        """
        if self.client is not None:
            self.client.end()
        ask = options["receive"]

        def note() -> Any:
            found = ask()
            self._message = found and found[0]
            return found

        options["receive"] = note
        for name in ("pull_object", "confirm_message_received"):
            options[name] = _ordinary_error()(options[name])
        while (run_id := self._receive(**options)) is None:
            time.sleep(pause(time.monotonic() - self._last_message))
        return cast("int", run_id)

    def send(self, *, state: Any, object_store: Any, **connection: Any) -> None:
        """Have a client reply to the message, or reply in its place; send the reply."""
        taken = self._take_task(AcquireTaskRequest(supported_task_types=TYPES), state)
        if token := taken.token:  # there is none where Flower has refused the message's app
            series = state.get_run(taken.task.run_id).series_id
            before, after = self._states.get(series) or TemporaryFile(), TemporaryFile()  # noqa: SIM115
            states = [f"/proc/{os.getpid()}/fd/{file.fileno()}" for file in (before, after)]
            client = self.client = Client(self._address, token, self._message.metadata, states)
            client.wait(lambda: state.get_task_by_token(token) is None)
            if client.reply is None:
                if state.get_task_by_token(token):  # or Flower has replied, after a silent minute
                    self._reply_in_its_place(state, taken.task)
            elif not all(map(object_store.get, client.reply)):
                raise ConnectionError("a client ended while it handed in its reply")
            else:
                self._states[series] = after
        self._send(state=state, object_store=object_store, **connection)
        self._last_message = time.monotonic()

    def store_reply(self, request: Any, state: Any, task: Any) -> Any:
        """Let Flower store what it is told of a reply; note that this is on its way."""
        if self.client is not None:
            parts = iterate_object_tree(request.message_object_trees[0])
            self.client.reply = [part.object_id for part in parts]
        return self._store_reply(request, state, task)

    def _reply_in_its_place(self, state: Any, task: Any) -> None:
        """Reply with an error at once; without this the server waits a minute for Flower's."""
        reply = Message(Error(ErrorCode.CLIENT_APP_CRASHED, REASON), reply_to=self._message)

        def call(handler: str) -> Callable[[Any], Any]:
            return lambda request: getattr(runtime_handlers, handler)(request, state, task)

        # What Flower's functions use of a client's connection and of its context.
        connection: Any = SimpleNamespace(
            PushMessages=call("push_messages"),
            PushObject=call("push_object"),
            PushTaskOutput=call("push_task_output"),
        )
        context: Any = SimpleNamespace(node_id=state.get_node_id(), run_id=task.run_id)
        push_message(connection, reply, context)
        push_task_output(connection, None, SubStatus.FAILED, REASON)


def pause(idle: float) -> float:
    """Return the seconds until the next look for a message.

    They are a tenth of the time since the last one: so looking costs little, and adds at most a
    tenth.

    Args:
        idle: The seconds since the last message was replied to.
    """
    return min(max(idle / 10, SHORTEST_PAUSE), LONGEST_PAUSE)


def _refuse(*_: Any) -> NoReturn:
    """Refuse a task to whoever asks for one: they are for the clients that are started here."""
    raise HTTPException(403)


@contextmanager
def _ordinary_error() -> Iterator[None]:
    """Raise an ordinary error where the message's run has ended.

    Flower's is a `BaseException`, which skips what its loop does where it cannot receive a message:
    the message and its task would stay, and block the messages of later runs.
    """
    try:
        yield
    except RunNotRunningException as error:
        raise RuntimeError("the run has ended") from error
