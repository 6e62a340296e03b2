"""What each device may send: one reply to each of its messages, within a size limit.

All of it follows from what the SuperLink itself has answered: the messages it gave to a device, the
sizes of the objects that the device fetched, the uploads it opened.
"""

import json
import time
from collections import Counter, OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from flwr.common.constant import SUPERLINK_NODE_ID
from flwr.proto.fleet_pb2 import PullMessagesResponse, PushMessagesRequest, PushMessagesResponse
from flwr.proto.message_pb2 import (
    ConfirmMessageReceivedRequest,
    Message,
    ObjectTree,
    PullObjectRequest,
    PushObjectRequest,
)
from flwr.supercore.inflatable.inflatable_object import (
    get_object_head_values_from_object_content,
    is_valid_sha256_hash,
)

# A reply may have twice the bytes and objects of the largest message of its run, and these beside:
# heads, names, numbers, the reason of an error.
SPARE_BYTES, SPARE_BYTES_PER_OBJECT, SPARE_OBJECTS = 256 * 2**10, 2**10, 64
MAX_METADATA_BYTES = 64 * 2**10
# The limit of the lists in an object: an array's chunks, a record's names.
MAX_LIST_BYTES = 4 * 2**20
# What is remembered: of a device, its last messages; of all, the last uploads and object sizes.
MESSAGES, UPLOADS, SIZES = 16, 4096, 2**16
# When a run asks for a reply, Flower gives it up if no object has come for this long.
STALLED_SECONDS = 180.0 + 5.0
# The size of an array's chunks, as Flower cuts them.
CHUNK_BYTES = 5 * 2**20


class RefusedError(Exception):
    """A request that is not served, and why."""


@dataclass
class _Given:
    """A message that was given to a device."""

    message: Message  # its metadata, without content
    run_id: int
    object_ids: list[str]  # one for every place in its tree
    upload: "_Upload | None" = None  # of its reply
    session_id: str = ""


@dataclass
class _Upload:
    """A reply that is being sent."""

    node_id: int
    run_id: int
    message_id: str
    # By object: how often the reply has it, what it refers to, and its bytes once it is here.
    places: Counter[str] = field(default_factory=Counter)
    children: dict[str, list[str]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    bytes_left: int = 0
    awaited: set[str] = field(default_factory=set)  # objects that the device has yet to send
    last_arrival: float = 0.0  # of an object, or of the announcement, in monotonic seconds

    def cost(self, request: PushObjectRequest, named: Counter[str]) -> int:
        """Return the bytes that the reply grows by with an object; 0 if it is stored already.

        A part that an object names more than once counts as often.
        """
        if request.object_id in self.sizes:
            return 0
        more = sum(self.sizes.get(child, 0) * (count - 1) for child, count in named.items())
        return (len(request.object_content) + more) * self.places[request.object_id]


class GateRules:
    """Decides which requests of devices are served.

    Args:
        max_reply_bytes: The most that a reply may have; 0 for twice the largest message of its run.
    """

    def __init__(self, max_reply_bytes: int = 0) -> None:
        self._max_reply_bytes = max_reply_bytes
        self._given: dict[int, OrderedDict[str, _Given]] = {}
        self._uploads: OrderedDict[str, _Upload] = OrderedDict()
        self._sizes: OrderedDict[str, int] = OrderedDict()
        self._largest: dict[int, tuple[int, int]] = {}  # by run: bytes and objects
        self._replies: OrderedDict[str, _Upload] = OrderedDict()  # by the message answered

    def note_given(self, node_id: int, response: PullMessagesResponse) -> None:
        """Record the messages that a device was given."""
        pairs = zip(response.messages_list, response.message_object_trees, strict=True)
        for message, tree in pairs:
            given = self._given.setdefault(node_id, OrderedDict())
            ids = [node.object_id for node in places(tree)]
            given[message.metadata.message_id] = _Given(message, message.metadata.run_id, ids)
            _keep(given, MESSAGES)

    def note_fetched(self, request: PullObjectRequest, size: int) -> None:
        """Record the size of an object that a device fetched."""
        self._sizes[request.object_id] = size
        _keep(self._sizes, SIZES)

    def check_reply(self, request: PushMessagesRequest) -> None:
        """Check the announcement of a reply.

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
        given = self._given.get(node_id, {}).get(metadata.reply_to_message_id)
        if given is None or given.run_id != metadata.run_id:
            raise RefusedError("it answers no message that this device was given")
        if given.upload is not None and given.upload.message_id != metadata.message_id:
            raise RefusedError("the message has been answered before")
        if tree.object_id != metadata.message_id:
            raise RefusedError("its metadata do not fit its object")
        if (size := message.ByteSize()) > MAX_METADATA_BYTES:  # the text of an error is in them
            raise RefusedError(f"its metadata have {size} bytes, more than {MAX_METADATA_BYTES}")
        if not all(is_valid_sha256_hash(node.object_id) for node in places(tree)):
            raise RefusedError("an object's id is no SHA-256")
        count, most = sum(1 for _ in places(tree)), self._limits(given)[1]
        if count > most:
            raise RefusedError(f"{count} objects, at most {most} are expected")

    def note_announced(
        self, request: PushMessagesRequest, response: PushMessagesResponse
    ) -> PushMessagesResponse:
        """Record a reply whose objects the SuperLink awaits; return the answer to the device.

        A reply is announced again if the answer was lost. It continues in the new session, unless
        the run has asked for the reply meanwhile: then the SuperLink knows its message no more and
        names no objects, but still awaits them in the session before.
        """
        metadata = request.messages_list[0].metadata
        given = self._given[request.node.node_id][metadata.reply_to_message_id]
        if given.upload is None:
            given.upload = _Upload(request.node.node_id, metadata.run_id, metadata.message_id)
            given.upload.bytes_left = self._limits(given)[0]
            for node in places(request.message_object_trees[0]):
                given.upload.places[node.object_id] += 1
                children = [child.object_id for child in node.children]
                given.upload.children[node.object_id] = children
        elif given.session_id in self._uploads and not response.objects_to_push:
            missing = given.upload.places.keys() - given.upload.sizes.keys()
            return PushMessagesResponse(
                session_id=given.session_id, objects_to_push=sorted(missing)
            )
        given.upload.awaited = set(response.objects_to_push)
        given.upload.last_arrival = time.monotonic()
        self._replies[metadata.reply_to_message_id] = given.upload
        _keep(self._replies, UPLOADS)
        self._uploads.pop(given.session_id, None)
        self._uploads[response.session_id], given.session_id = given.upload, response.session_id
        _keep(self._uploads, UPLOADS)
        return response

    def check_object(self, request: PushObjectRequest) -> None:
        """Check an object of a reply.

        Raises:
            RefusedError: It belongs to no announced reply, or is malformed, or the reply would
                become too large with it.
        """
        upload = self._uploads.get(request.session_id)
        if upload is None or upload.node_id != request.node.node_id:
            raise RefusedError("the object belongs to no reply that this device has announced")
        if request.run_id != upload.run_id or request.object_id not in upload.places:
            raise RefusedError("the object was not announced")
        children, named = _references(request.object_content)
        if children != upload.children[request.object_id]:
            raise RefusedError("the object refers to others than were announced")
        if upload.cost(request, named) > upload.bytes_left:
            raise RefusedError("the reply has more bytes than this run's messages allow")

    def note_stored(self, request: PushObjectRequest) -> None:
        """Record an object that the SuperLink has stored, whose id is the hash of its content."""
        upload = self._uploads.get(request.session_id)
        if upload is None or request.object_id in upload.sizes:
            return
        _, named = _references(request.object_content)
        upload.bytes_left -= upload.cost(request, named)
        places = upload.places[request.object_id]
        upload.sizes[request.object_id] = len(request.object_content)
        for child, count in named.items():
            upload.places[child] += (count - 1) * places
        upload.awaited.discard(request.object_id)
        upload.last_arrival = time.monotonic()

    def reply_has_arrived(self, message_id: str) -> bool | None:
        """Return whether a run that asks for a reply gets it; None if it is not announced.

        A reply whose upload has stalled counts as arrived: the SuperLink gives it up.
        """
        upload = self._replies.get(message_id)
        if upload is None:
            return None
        stalled = time.monotonic() - upload.last_arrival > STALLED_SECONDS
        return not upload.awaited or stalled

    def check_confirmed(self, request: ConfirmMessageReceivedRequest) -> None:
        """Check that a device confirms, which deletes it, a message that it was given.

        Raises:
            RefusedError: It was not.
        """
        if request.message_object_id not in self._given.get(request.node.node_id, {}):
            raise RefusedError("it confirms a message that this device was not given")

    def unanswered(self, node_id: int, message_id: str = "") -> Message | None:
        """Return a message that the device was given and has not announced a reply to.

        Args:
            node_id: The device's.
            message_id: The message's; empty for the last that it was given.
        """
        given: OrderedDict[str, _Given] = self._given.get(node_id, OrderedDict())
        found = given.get(message_id or next(reversed(given), ""))
        return found.message if found is not None and found.upload is None else None

    def end_upload(self, node_id: int, session_id: str = "") -> tuple[int, str]:
        """Take nothing more of a reply; return its run and its id, 0 and empty if there is none.

        Args:
            node_id: The device's.
            session_id: The upload's; empty for that of the last message that was given.
        """
        if not session_id:
            sessions = [given.session_id for given in self._given.get(node_id, {}).values()]
            session_id = sessions[-1] if sessions else ""
        upload = self._uploads.get(session_id)
        if upload is None or upload.node_id != node_id:
            return 0, ""
        del self._uploads[session_id]
        upload.awaited.clear()
        return upload.run_id, upload.message_id

    def _limits(self, given: _Given) -> tuple[int, int]:
        """Return the most bytes and objects of a reply."""
        size = sum(self._sizes.get(object_id, 0) for object_id in given.object_ids)
        before = self._largest.get(given.run_id, (0, 0))
        largest = max(before[0], size), max(before[1], len(given.object_ids))
        self._largest[given.run_id] = largest
        most = self._max_reply_bytes or (
            2 * largest[0] + SPARE_BYTES + SPARE_BYTES_PER_OBJECT * largest[1]
        )
        return most, 2 * largest[1] + SPARE_OBJECTS + most // CHUNK_BYTES


def places(tree: ObjectTree) -> Iterator[ObjectTree]:
    """Yield a tree's nodes; an object that is referred to several times comes several times."""
    yield tree
    for child in tree.children:
        yield from places(child)


def _references(content: bytes) -> tuple[list[str], Counter[str]]:
    """Return the ids of the objects that this one refers to, and how often it names each.

    An array lists its chunks by their number, a record its parts by name.

    Raises:
        RefusedError: It is malformed, names objects that it does not have, or not all that it has.
    """
    try:
        kind, children, _ = get_object_head_values_from_object_content(content)
        if kind not in ("Array", "ArrayRecord", "RecordDict"):
            return children, Counter(children)
        body = json.loads(content[content.index(b"\0") + 1 :][:MAX_LIST_BYTES])
        if kind == "Array":
            numbers = Counter(body["arraychunk_ids"])
            named = Counter({children[number]: count for number, count in numbers.items()})
            if min(numbers, default=0) < 0:
                raise ValueError("a negative number of a chunk")
        else:
            named = Counter(body.values())
    except Exception as error:  # whatever Flower and JSON raise for a device's bytes
        raise RefusedError(f"malformed object: {type(error).__name__}: {error}") from error
    if set(named) != set(children):
        raise RefusedError("the object names others than it has, or not all of them")
    return children, named


def _keep(entries: OrderedDict[str, Any], most: int) -> None:  # the newest
    while len(entries) > most:
        entries.popitem(last=False)
