"""Flower's grid over the network, one message and one object at a time.

`HttpGrid.pull_messages` fetches and inflates all replies of a call in one go. It waits up to two
hours for the objects of a reply that its device has only announced, holds whatever the device sent
in memory, and raises what one malformed object raises. None of that can be set. This module reaches
the requests below it, which are not public: the grid's client, its requests, the objects' format.
`fedavg_app/network/network_grid.py` decides what to fetch.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from flwr.app import Error, Message
from flwr.serverapp import Grid

from fedavg_app.errors import RunError

# Flower's own error of a reply whose objects are missing.
MESSAGE_UNAVAILABLE = 3
ARRAY, ARRAY_CHUNK = "Array", "ArrayChunk"
# Of each of an array's chunks but the last: FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE, unless it is set.
CHUNK_BYTES = 5 * 2**20
HTTP_INTERNAL_ERROR, PATIENCE_SECONDS = 500, 60.0
LONGEST_PAUSE = 30.0  # between two tries of one request, with the SuperLink's own wait
_REQUESTS = ("PullMessages", "PullObject", "ConfirmMessageReceived")


class ResponseTooLargeError(Exception):
    """The SuperLink holds more than may be read at once; nothing of it was read."""


class ObjectLostError(Exception):
    """The SuperLink no longer has an object: its upload was given up."""


@dataclass(frozen=True)
class Announcement:
    """A reply that the SuperLink knows of; its objects may not have arrived yet.

    Attributes:
        root: The id of the message's object.
        object_ids: Those of all its objects, each after those that it refers to.
        reply: The reply without content, with the metadata that the SuperLink has checked: which
            node it is from, and which message it answers.
    """

    root: str
    object_ids: list[str]
    reply: Message


@dataclass(frozen=True)
class StoredObject:
    """One object as it was sent: its kind, the ids of those that it refers to, and its bytes."""

    kind: str
    children: list[str]
    body: bytes


def is_network_grid(grid: Grid) -> bool:
    """Return whether this is Flower's grid over the network.

    Its module takes a second to import, and a process that has such a grid has imported it.
    """
    module = sys.modules.get("flwr.superlink.grid")
    return module is not None and isinstance(grid, module.HttpGrid)


class RuntimeConnection:
    """The requests of Flower's `HttpGrid`, with a bound on what is read of each response.

    Args:
        grid: The grid; `is_network_grid`.

    Raises:
        RunError: This version of Flower has another one.
    """

    def __init__(self, grid: Any) -> None:
        self._grid = grid
        self._limit = threading.local()  # Flower's heartbeats use the same client on their threads
        try:
            self._client = grid._runtime_client
            self._node = grid.node
            self._run_id: int = grid.run.run_id
            for name in _REQUESTS:
                getattr(self._client, name)
            http = self._client._client
            hooks = http.event_hooks
            hooks["response"].append(self._check_length)
            http.event_hooks = hooks
            invoker = grid._retry_invoker
            invoker.should_giveup = _Patience(invoker.should_giveup)
        except (AttributeError, KeyError) as error:
            raise RunError(
                f"the network grid of Flower {version('flwr')} is not the one that this "
                f"app reads replies through ({error}); install flwr 1.41 or 1.42"
            ) from error

    def announced(self, message_id: str, max_bytes: int) -> Announcement | None:
        """Return the reply to a message; None if there is none yet.

        The SuperLink names a reply only once.
        """
        from flwr.common.serde import message_from_proto
        from flwr.proto.runtime_pb2 import PullAppMessagesRequest
        from flwr.supercore.inflatable.inflatable_object import iterate_object_tree

        with self._at_most(max_bytes):
            found = self._client.PullMessages(PullAppMessagesRequest(message_ids=[message_id]))
        pairs = zip(found.messages_list, found.message_object_trees, strict=True)
        for message, tree in pairs:
            if message.metadata.reply_to_message_id == message_id:
                ids = [node.object_id for node in iterate_object_tree(tree)]
                return Announcement(
                    tree.object_id, list(dict.fromkeys(ids)), message_from_proto(message)
                )
        return None

    def fetch(self, object_id: str, max_bytes: int) -> bytes | None:
        """Return an object; None if it has not arrived yet.

        Raises:
            ResponseTooLargeError: It has more than ``max_bytes``.
            ObjectLostError: It will not arrive any more.
        """
        from flwr.proto.message_pb2 import PullObjectRequest

        request = PullObjectRequest(node=self._node, run_id=self._run_id, object_id=object_id)
        with self._at_most(max_bytes):
            response = self._client.PullObject(request)
        if not response.object_found:
            raise ObjectLostError("its upload ended before all of it had arrived")
        content: bytes = response.object_content
        return content if response.object_available else None

    def delete(self, root: str) -> None:
        """Let the SuperLink delete a message and its objects; what is still sent is refused."""
        from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest

        self._client.ConfirmMessageReceived(
            ConfirmMessageReceivedRequest(
                node=self._node, run_id=self._run_id, message_object_id=root
            )
        )

    @contextmanager
    def _at_most(self, max_bytes: int) -> Iterator[None]:
        self._limit.bytes = max_bytes
        try:
            yield
        finally:
            self._limit.bytes = None

    def _check_length(self, response: Any) -> None:
        """Raise for a response that is too long, before its content is read."""
        limit = getattr(self._limit, "bytes", None)
        if limit is None or not response.is_success:
            return
        length = int(response.headers["content-length"])
        if length > limit:
            raise ResponseTooLargeError(f"{length} bytes where at most {limit} are expected")


class _Patience:
    """Decides whether a failed request is tried again: Flower's rule, and status 500 as well.

    That is what the SuperLink answers while its database is locked for longer than 5 seconds, as a
    device can make it by announcing a thousand objects. Flower's grid raises it, which ends a run.

    Args:
        give_up: Flower's rule.
    """

    def __init__(self, give_up: Callable[[Exception], bool]) -> None:
        self._give_up = give_up
        self._failures = threading.local()  # of each thread: since when, and when last

    def __call__(self, error: Exception) -> bool:
        """Return whether a request that failed like this is given up."""
        response = getattr(error, "response", None)
        if getattr(response, "status_code", None) != HTTP_INTERNAL_ERROR:
            return self._give_up(error)
        now = time.monotonic()
        since, last = getattr(self._failures, "times", (now, now))
        if now - last > LONGEST_PAUSE:  # that was another request
            since = now
        self._failures.times = since, now
        if now - since < PATIENCE_SECONDS:
            return False
        del self._failures.times
        return True


def read_object(content: bytes, max_head: int) -> StoredObject:
    """Return an object's parts.

    Raises:
        ValueError: It is malformed, or its head is longer than ``max_head`` bytes.
    """
    from flwr.supercore.constant import HEAD_BODY_DIVIDER
    from flwr.supercore.inflatable import inflatable_object as flower

    end = content.find(HEAD_BODY_DIVIDER, 0, max_head)
    if end < 0:
        raise ValueError("an object has no head, or one that is too long")
    kind, children, _ = flower.get_object_head_values_from_object_content(content[: end + 1])
    return StoredObject(kind, children, content[end + 1 :])


def inflate(announcement: Announcement, contents: dict[str, bytes]) -> Message:
    """Return the reply with its content; ``contents``, by id, is emptied.

    It keeps the metadata that the SuperLink has checked, not those that the device wrote into the
    object.

    Raises:
        Exception: Whatever Flower raises for objects that do not make a message.
    """
    from flwr.app.message import make_message
    from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

    inflated = inflate_object_from_contents(announcement.root, contents)
    if not isinstance(inflated, Message):
        raise TypeError(f"it is a {type(inflated).__name__}, not a Message")
    metadata = announcement.reply.metadata
    if inflated.has_error():
        return make_message(metadata, error=inflated.error)
    return make_message(metadata, content=inflated.content)


def without_content(message: Message) -> Message:
    """Return a message with the same metadata, which `refusal` needs."""
    from flwr.app.message import remove_content_from_message

    return remove_content_from_message(message)


def refusal(message: Message, reason: str) -> Message:
    """Return the reply that stands for one that was refused; it comes from the message's node."""
    return Message(Error(MESSAGE_UNAVAILABLE, reason), reply_to=message)
