"""Flower's grid over the network, with bounds on what one device can cost the run.

A device that has a key can send anything: an array of terabytes, objects that do not fit together,
half a reply. Here each reply is fetched on its own, object by object, as far as it has arrived, and
held against the model's size before it is put together. Whatever goes wrong with it is the reason
for which it is refused; the other replies, and the round's deadline, do not depend on it.
"""

import itertools
import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from flwr.app import ArrayRecord, Message
from flwr.serverapp import Grid

from fedavg_app.flower_internals import BaseGrid, NodeInfo
from fedavg_app.network.flower_http import (
    Announcement,
    RuntimeConnection,
    inflate,
    is_network_grid,
    refusal,
    without_content,
)
from fedavg_app.network.reply_limits import ReplyLimits, ReplyMeter
from fedavg_app.server.message_size import message_bytes
from strategies.reply_validation import ReplyError

logger = logging.getLogger("fedavg_app.network")

# Seconds until the next look at the SuperLink after one without a result. A look is a request for
# each message that has no reply, and a SuperLink spends some 20 ms of CPU time on a request.
MIN_PAUSE = 0.2

# An upload that takes longer is given up, also in a run without a round-timeout: Flower's limit.
MAX_UPLOAD_SECONDS = 7200.0


def bounded(grid: Grid, model: ArrayRecord, update_bytes: int) -> Grid:
    """Return a grid that bounds replies, where they come over the network; else the grid itself.

    Args:
        grid: The grid.
        model: The global model.
        update_bytes: The most that a client's update may have.

    Raises:
        RunError: The installed Flower has another network grid than this project knows.
    """
    if not is_network_grid(grid):
        return grid
    return NetworkGrid(grid, RuntimeConnection(grid), ReplyLimits.of(model, update_bytes))


@dataclass
class _Upload:
    """A reply that was announced, as far as it has arrived."""

    announcement: Announcement
    meter: ReplyMeter
    due: float
    contents: dict[str, bytes] = field(default_factory=dict)


@dataclass
class _Sent:
    """A message that has no reply yet."""

    message: Message  # without its content
    due: float
    upload: _Upload | None = None
    last_look: int = -1


class NetworkGrid(BaseGrid):
    """A grid whose replies are fetched one at a time and bounded.

    Args:
        grid: Flower's, which sends the messages and knows the nodes.
        connection: Its requests for replies.
        limits: What a reply may have.
    """

    def __init__(self, grid: Grid, connection: RuntimeConnection, limits: ReplyLimits) -> None:
        self._grid, self._connection, self._limits = grid, connection, limits
        self._sent: dict[str, _Sent] = {}
        self._looks = itertools.count()
        self._found = False

    def get_node_ids(self) -> list[int]:
        """Return the connected nodes' ids."""
        return list(self._grid.get_node_ids())

    def get_nodes(self) -> Iterable[NodeInfo]:
        """Return what Flower knows of the connected nodes."""
        return self._grid.get_nodes()

    def push_messages(self, messages: Iterable[Message]) -> Sequence[str]:
        """Send messages through Flower's grid."""
        pushed = list(messages)
        ids = list(self._grid.push_messages(pushed))
        now = time.monotonic()
        self._forget(now)
        for message, message_id in zip(pushed, ids, strict=False):
            if message_id:
                due = now + message.metadata.ttl
                self._sent[message_id] = _Sent(without_content(message), due)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Return the next reply that has arrived as a whole, or was refused; at most one.

        So no more than one is held besides what has arrived of unfinished ones. A call goes on
        where the last one stopped, with the message that was looked at least recently.
        """
        self._found = False
        wanted = [message_id for message_id in set(message_ids) if message_id in self._sent]
        for message_id in sorted(wanted, key=lambda key: self._sent[key].last_look):
            sent = self._sent[message_id]
            sent.last_look = next(self._looks)
            reply = self._reply(message_id, sent)
            if reply is not None:
                del self._sent[message_id]
                self._found = True
                return [reply]
        return []

    def wait(self, seconds: float) -> None:
        """Sleep until the next call of `pull_messages`; not at all if the last one had a reply."""
        if not self._found:
            time.sleep(max(seconds, MIN_PAUSE))

    def _forget(self, now: float) -> None:
        """Drop the unfinished uploads that nobody asks for any more."""
        for message_id, sent in list(self._sent.items()):
            if sent.upload is not None and now > sent.upload.due:
                self._delete(sent.upload.announcement)
                del self._sent[message_id]

    def _reply(self, message_id: str, sent: _Sent) -> Message | None:
        """Return the reply to a message, or its refusal; None if it has not arrived yet."""
        try:
            reply = self._received(message_id, sent)
        except Exception as error:  # whatever a device's bytes lead to, also inside Flower
            reply = refusal(sent.message, f"refused: {_reason(error)}")
        if reply is not None and sent.upload is not None:
            self._delete(sent.upload.announcement)
        return reply

    def _received(self, message_id: str, sent: _Sent) -> Message | None:
        if sent.upload is None:
            found = self._connection.announced(message_id, self._limits.announcement_bytes)
            if found is None:
                return None
            due = min(sent.due, time.monotonic() + MAX_UPLOAD_SECONDS)
            sent.upload = _Upload(found, ReplyMeter(self._limits), due)
            self._limits.check_count(len(found.object_ids))
        upload = sent.upload
        if upload.announcement.reply.has_error():
            return upload.announcement.reply
        if not self._fetch(upload):
            return None
        reply = inflate(upload.announcement, upload.contents)
        size = message_bytes(reply)
        if size > self._limits.total_bytes:
            raise ReplyError(f"its records claim {size} bytes")
        return reply

    def _fetch(self, upload: _Upload) -> bool:
        """Fetch what has arrived of a reply; return whether that is all of it.

        Raises:
            ValueError: It is malformed or too large.
            ReplyError: It is late.
        """
        for object_id in upload.announcement.object_ids:
            if object_id in upload.contents:
                continue
            content = self._connection.fetch(object_id, upload.meter.bytes_left)
            if content is None:
                if time.monotonic() > upload.due:
                    raise ReplyError("its upload did not end in time")
                return False
            upload.meter.add(object_id, content)
            upload.contents[object_id] = content
        return True

    def _delete(self, announcement: Announcement) -> None:
        """Free the SuperLink's memory of a reply; the run does not depend on it."""
        try:
            self._connection.delete(announcement.root)
        except Exception as error:
            logger.warning("a reply stays in the SuperLink's database: %s", _reason(error))


def _reason(error: Exception) -> str:
    """Return the error in one line; its type, too, where it is not one of a reply's own."""
    text = " ".join(str(error).split())
    return text if isinstance(error, ReplyError) else f"{type(error).__name__}: {text}"
