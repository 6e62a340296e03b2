"""What each device may send: one reply to each of its messages, within a limit.

A reply is received as a whole, and judged, before the SuperLink hears of it. So it consists of what
its device has sent for it, and never of what others have stored. Limits come from the messages that
the run itself has posted.
"""

import asyncio
import os
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from hashlib import sha256
from tempfile import SpooledTemporaryFile

from flwr.common.constant import SUPERLINK_NODE_ID
from flwr.proto.fleet_pb2 import PullMessagesResponse, PushMessagesRequest, PushMessagesResponse
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, Message, PushObjectRequest
from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
from starlette.types import Scope

from deployment.superlink.unfolded_size import Objects, read_part

# A reply may have twice what the largest message of its run has, and these beside.
SPARE_BYTES, SPARE_OBJECTS = 2**20, 64
# The size of an array's chunks, as Flower cuts them.
CHUNK_BYTES = 5 * 2**20
# The limit of an announcement: this for a message's metadata and the text of an error, and this for
# each object's id and its place in the tree.
MAX_METADATA_BYTES, PLACE_BYTES = 64 * 2**10, 80
# What is remembered: the last messages that were given, and the last objects that runs have posted.
MESSAGES, OBJECTS = 2**16, 2**16
# An upload is given up if no object has come for this long.
STALLED_SECONDS = 180.0
# A reply up to this size is kept in memory, a larger one in a file without a name.
MEMORY_BYTES = 2**20


class RefusedError(Exception):
    """A request that is not served, and why."""


class Upload:
    """A reply of which the objects are being received.

    Args:
        announcement: Its metadata and the tree of its objects.
        most: The most bytes that it may unfold to.
        folder: Where a large reply is kept.
    """

    def __init__(self, announcement: PushMessagesRequest, most: int, folder: str | None) -> None:
        tree = announcement.message_object_trees[0]
        self.announcement, self.lock = announcement, asyncio.Lock()
        self.reply_id: str = tree.object_id
        self.last_arrival = time.monotonic()
        self._most = self._left = most
        self._children = {
            node.object_id: [child.object_id for child in node.children]
            for node in iterate_object_tree(tree)
        }
        self._objects = Objects(len(self._children))
        self._places: dict[str, tuple[int, int]] = {}
        self._file = SpooledTemporaryFile(MEMORY_BYTES, dir=folder)  # noqa: SIM115 - see `close`

    @property
    def is_complete(self) -> bool:
        """Whether all of its objects have come."""
        return len(self._places) == len(self._children)

    def has_stalled(self) -> bool:
        """Return whether nothing has come for long."""
        idle = time.monotonic() - self.last_arrival
        return idle > STALLED_SECONDS and not self.is_complete

    def missing(self) -> list[str]:
        """Return the ids of the objects that have not come."""
        return [object_id for object_id in self._children if object_id not in self._places]

    def take(self, object_id: str, content: bytes) -> None:
        """Take an object in.

        Raises:
            RefusedError: It was not announced so, is malformed, or the reply is too large with it.
            OSError: It cannot be stored.
        """
        if object_id not in self._children:
            raise RefusedError("the object was not announced")
        if object_id in self._places:
            return
        if sha256(content).hexdigest() != object_id:
            raise RefusedError("the object's id is not the hash of its content")
        try:
            part = read_part(content, self._left)
        except ValueError as error:
            raise RefusedError(str(error)) from error
        if part.children != self._children[object_id]:
            raise RefusedError("the object refers to others than were announced")
        if object_id == self.reply_id:
            self._check_metadata(content)
        start = self._file.seek(0, os.SEEK_END)
        self._file.write(content)  # may fail, and the device then sends it again
        self._places[object_id] = start, len(content)
        self._left -= part.size
        self._objects.add(object_id, part)
        self.last_arrival = time.monotonic()
        if self.is_complete and self._objects.size(self.reply_id) > self._most:
            del self._places[object_id]
            raise RefusedError(f"the reply unfolds to more than {self._most} bytes")

    def content(self, object_id: str) -> bytes:
        """Return an object that has come."""
        start, length = self._places[object_id]
        self._file.seek(start)
        return self._file.read(length)

    def close(self) -> None:
        """Forget what has come."""
        self._file.close()

    def _check_metadata(self, content: bytes) -> None:
        """Check that the run will read what was announced."""
        announced = self.announcement.messages_list[0]
        found = Message.FromString(content[content.index(b"\0") + 1 :])
        found.metadata.message_id = announced.metadata.message_id
        if found.metadata != announced.metadata or found.error != announced.error:
            raise RefusedError("its metadata are not those that were announced")


@dataclass
class DeliveredMessage:
    """A message that was given to a device, and how far its reply is."""

    node_id: int
    message: Message  # without content
    objects: int  # how many the message has
    upload: Upload | None = None  # the reply, while it is received
    # The last request for the reply, whose signature is the device's.
    scope: Scope = field(default_factory=dict)
    is_over: bool = False  # whether the run has the reply, or an error in its place
    has_arrived: bool = False  # whether it has the reply

    def end(self, *, has_arrived: bool = False) -> None:
        """Note that the run has the reply, or an error in its place."""
        self.has_arrived = has_arrived
        if self.upload is not None:
            self.upload.close()
        self.is_over, self.upload, self.scope = True, None, {}


class Replies:
    """Decides which replies of devices are received.

    Args:
        max_reply_bytes: The most that a reply may unfold to; 0 for twice the largest message of its
            run.
        folder: Where large replies are kept while they come; None for the system's.
    """

    def __init__(self, max_reply_bytes: int = 0, folder: str | None = None) -> None:
        self._max_reply_bytes, self._folder = max_reply_bytes, folder
        self._given: OrderedDict[str, DeliveredMessage] = OrderedDict()  # by the message's id
        self._last: dict[int, DeliveredMessage] = {}  # by node
        self._receiving: dict[tuple[int, str], DeliveredMessage] = {}  # by node and the reply's id
        self._posted = Objects(OBJECTS)
        self._largest: dict[int, tuple[int, int]] = {}  # by run: bytes and objects

    def note_posted(self, object_id: str, content: bytes) -> None:
        """Note an object that the run has posted."""
        self._posted.add(object_id, read_part(content))

    def note_given(self, node_id: int, response: PullMessagesResponse) -> None:
        """Note the messages that a device was given."""
        pairs = zip(response.messages_list, response.message_object_trees, strict=True)
        for message, tree in pairs:
            given = DeliveredMessage(node_id, message, sum(1 for _ in iterate_object_tree(tree)))
            self._limits(given)
            self._given[message.metadata.message_id] = self._last[node_id] = given
            if len(self._given) > MESSAGES:
                self._given.popitem(last=False)[1].end()

    def most_announced(self, node_id: int) -> int:
        """Return the most bytes that an announcement of a device may have."""
        given = self._last.get(node_id)
        return MAX_METADATA_BYTES + PLACE_BYTES * (self._limits(given)[1] if given else 0)

    def announce(self, request: PushMessagesRequest, scope: Scope) -> PushMessagesResponse:
        """Begin to receive a reply, or go on where it has been announced before.

        Raises:
            RefusedError: It is not the device's reply to a message that it was given, or has too
                many objects.
        """
        if len(request.messages_list) != 1 or len(request.message_object_trees) != 1:
            raise RefusedError("it announces no reply, or several")
        message, tree = request.messages_list[0], request.message_object_trees[0]
        metadata, node_id = message.metadata, request.node.node_id
        if metadata.src_node_id != node_id:
            raise RefusedError(f"it says that it comes from node {metadata.src_node_id}")
        if metadata.dst_node_id != SUPERLINK_NODE_ID:
            raise RefusedError(f"it is addressed to node {metadata.dst_node_id}")
        given = self._given.get(metadata.reply_to_message_id)
        if given is None or given.node_id != node_id:
            raise RefusedError("it answers no message that this device was given")
        if given.message.metadata.run_id != metadata.run_id:
            raise RefusedError("it answers no message of its run")
        if given.is_over or (given.upload and given.upload.reply_id != metadata.message_id):
            raise RefusedError("the message has been answered before")
        if tree.object_id != metadata.message_id:
            raise RefusedError("its metadata do not fit its object")
        if (size := message.ByteSize()) > MAX_METADATA_BYTES:  # the text of an error is in them
            raise RefusedError(f"its metadata have {size} bytes, more than {MAX_METADATA_BYTES}")
        most, most_objects = self._limits(given)
        if (count := sum(1 for _ in iterate_object_tree(tree))) > most_objects:
            raise RefusedError(f"{count} objects, at most {most_objects} are expected")
        if given.upload is None:
            given.upload = Upload(request, most, self._folder)
            self._receiving[node_id, given.upload.reply_id] = given
        given.scope = scope
        return PushMessagesResponse(
            results={metadata.message_id: 0},
            objects_to_push=given.upload.missing(),
            session_id=given.upload.reply_id,
        )

    def receiving(self, request: PushObjectRequest) -> DeliveredMessage:
        """Return the message to whose reply an object belongs.

        Raises:
            RefusedError: It belongs to none that is received, or has arrived.
        """
        given = self._receiving.get((request.node.node_id, request.session_id))
        if given is None or (given.is_over and not given.has_arrived):
            raise RefusedError("the object belongs to no reply that this device has announced")
        return given

    def ended_by(self, node_id: int, *, is_object: bool) -> DeliveredMessage | None:
        """Return the message whose reply ends since a request of a device is refused: its last.

        An announcement that is refused ends no reply that was announced before.

        Args:
            node_id: The device's.
            is_object: Whether the request is an object, not an announcement.
        """
        given = self._last.get(node_id)
        if given is None or given.is_over:
            return None
        ends = given.upload is None or (is_object and not given.upload.is_complete)
        return given if ends else None

    def is_finished(self, message_id: str) -> bool | None:
        """Return whether the run has a message's reply or its error; None if none is on its way."""
        given = self._given.get(message_id)
        return given.is_over if given and (given.is_over or given.upload) else None

    def stalled(self) -> list[DeliveredMessage]:
        """Return the messages to which the replies have ceased to come."""
        self._receiving = {
            key: one
            for key, one in self._receiving.items()
            if not one.is_over or one is self._last[one.node_id]
        }
        return [one for one in self._receiving.values() if one.upload and one.upload.has_stalled()]

    def check_confirmed(self, request: ConfirmMessageReceivedRequest) -> None:
        """Check that a device confirms, which deletes it, a message that it was given.

        Raises:
            RefusedError: It was not.
        """
        given = self._given.get(request.message_object_id)
        if given is None or given.node_id != request.node.node_id:
            raise RefusedError("it confirms a message that this device was not given")

    def _limits(self, given: DeliveredMessage) -> tuple[int, int]:
        """Return the most bytes and objects of a reply, which rise with the run's messages."""
        try:
            size = self._posted.size(given.message.metadata.message_id)
        except KeyError:  # it is still being posted, or was posted long ago
            size = 0
        run_id = given.message.metadata.run_id
        before = self._largest.get(run_id, (0, 0))
        largest = max(before[0], size), max(before[1], given.objects)
        self._largest[run_id] = largest
        most = self._max_reply_bytes or 2 * largest[0] + SPARE_BYTES
        return most, 2 * largest[1] + SPARE_OBJECTS + most // CHUNK_BYTES
