"""What grids need and Flower does not document.

The rest of the app builds on public API. From here come:

* `Run`, which the abstract methods of the public class `Grid` mention.
* The identity of the process, without which no `Message` can be made outside Flower's own engines.
* The id of a message, which the sending grid must set; `Metadata` has no public setter for it.
* The error codes of a ClientApp that raised and of a message that is unavailable.
* The server's node id.
* The bytes of a message's content.

Tested with Flower 1.41 and 1.42.
"""

import math
from collections.abc import Iterable
from itertools import chain, count
from uuid import uuid4

from flwr.app import Error, Message, RecordDict
from flwr.common.constant import SUPERLINK_NODE_ID, ErrorCode
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.proto.recorddict_pb2 import RecordDict as ProtoRecordDict
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

from fedavg_app.server.polling import poll_replies, send

FIRST_NODE_ID = SUPERLINK_NODE_ID + 1
MESSAGE_UNAVAILABLE = ErrorCode.MESSAGE_UNAVAILABLE
# Message ids: different from those of other processes, and cheap to make.
_PROCESS, _COUNT = uuid4(), count()
# What a protobuf in another takes of memory once it is read, and a field or a number of a list.
ITEM_BYTES, FIELD_BYTES = 256, 64


def identify_server(run_id: int) -> None:
    """Make messages created in this process come from the server of run ``run_id``."""
    TaskIdentity.task_id = 1
    TaskIdentity.run_id = run_id
    TaskIdentity.node_id = SUPERLINK_NODE_ID


def assign_message_id(message: Message) -> str:
    """Give the message an id of its own and return it."""
    message_id = f"{_PROCESS}-{next(_COUNT)}"
    message.metadata.__dict__["_message_id"] = message_id
    return message_id


def error_reply(
    message: Message, reason: str, code: int = ErrorCode.CLIENT_APP_RAISED_EXCEPTION
) -> Message:
    """Return an error as the reply to a message, by default that of a ClientApp that raised."""
    return Message(Error(code, reason), reply_to=message)


def content_to_bytes(content: RecordDict) -> bytes:
    """Return a message's content as bytes, the same for equal contents."""
    data: bytes = recorddict_to_proto(content).SerializeToString(deterministic=True)
    return data


def content_from_bytes(data: bytes, most: float = math.inf) -> RecordDict:
    """Return the content that `content_to_bytes` made the bytes of.

    Args:
        data: The bytes.
        most: The most bytes that the content may take, as `content_size` counts them.

    Raises:
        ValueError: The bytes are malformed, or the content takes more.
    """
    try:
        if most < math.inf and (size := content_size(data)) > most:
            raise ValueError(f"it takes {size} bytes, at most {most:.0f} are expected")
        return recorddict_from_proto(ProtoRecordDict.FromString(data))
    except Exception as error:  # protobuf's, and what Flower raises for values out of range
        raise ValueError(f"malformed content ({error})") from error


def content_size(data: bytes) -> int:
    """Return what `content_from_bytes` takes of memory, without making anything of the bytes.

    An empty item takes 30 times its bytes: each counts `ITEM_BYTES`, a field `FIELD_BYTES`. This is
    the rule of `deployment.superlink.unfolded_size`, which the app cannot import.

    Raises:
        ValueError, IndexError, KeyError: The bytes are malformed.
    """
    size, inner = len(data), [(memoryview(data), ProtoRecordDict.DESCRIPTOR)]
    while inner:
        view, kind = inner.pop()
        at = 0
        while at < len(view):
            size += FIELD_BYTES
            tag, at = _varint(view, at)
            field, wire = kind.fields_by_number.get(tag >> 3), tag & 7
            if wire != 2:  # not bytes behind their length
                at = at + {1: 8, 5: 4}[wire] if wire else _varint(view, at)[1]
                continue
            length, at = _varint(view, at)
            value, at = view[at : at + length], at + length
            if field is not None and field.message_type:
                size += ITEM_BYTES
                inner.append((value, field.message_type))
            elif field is not None and field.type not in (field.TYPE_STRING, field.TYPE_BYTES):
                size += FIELD_BYTES * (length // (8 if field.type == field.TYPE_DOUBLE else 1))
        if at > len(view):
            raise ValueError("it ends within a field")
    return size


def _varint(view: memoryview, at: int) -> tuple[int, int]:
    """Return the number that begins there, and where the next field begins."""
    value = shift = 0
    while (byte := view[at]) & 0x80:
        value, shift, at = value | (byte & 0x7F) << shift, shift + 7, at + 1
        if shift > 63:
            raise ValueError("a number of more than 64 bits")
    return value | byte << shift, at + 1


class BaseGrid(Grid):
    """What our grids share: the methods that Flower requires and this project does not use."""

    _run: Run

    def set_run(self, run: Run) -> None:
        """Set the run."""
        self._run = run

    @property
    def run(self) -> Run:
        """The run that was set."""
        return self._run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """Return a new message (deprecated in Flower in favour of ``Message``)."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        """Send the messages; return the replies that come within ``timeout`` seconds."""
        ids = send(self, list(messages))
        return list(chain.from_iterable(poll_replies(self, ids, timeout)))
