"""Messages on their way to a worker, and what several of them share."""

import pickle
from collections import Counter
from copy import copy, deepcopy
from dataclasses import dataclass
from typing import Any

from flwr.app import Message, RecordDict

from fedavg_app.flower_internals import FIRST_NODE_ID


class Batch:
    """Messages that were pushed together.

    Attributes:
        deadline: When their clients must be done, on the monotonic clock; infinity for never.
        shared: Copies of the records that several of them hold, with the same arrays.
    """

    def __init__(self, messages: list[Message], deadline: float) -> None:
        self.deadline = deadline
        records = [record for message in messages for record in message.content.values()]
        times = Counter(map(id, records))
        # Kept: an object made later must not get the `id` of one of them.
        self._records = {id(record): record for record in records if times[id(record)] > 1}
        self._numbers = {key: number for number, key in enumerate(self._records)}
        self.shared = deepcopy([*self._records.values()])  # the bytes in them are not copied

    def dumps(self, message: Message) -> bytes:
        """Return one of the messages pickled, without what is in ``shared``."""
        records = {
            name: self._numbers.get(id(record), record) for name, record in message.content.items()
        }
        head = copy(message)
        head.content = RecordDict()
        return pickle.dumps((head, records))


def loads(message: bytes, shared: list[Any]) -> Message:
    """Return what `Batch.dumps` was given, with copies of the shared records."""
    found: Message
    found, records = pickle.loads(message)  # noqa: S301 - the driver's own
    for name, record in records.items():
        # The bytes in it are not copied.
        found.content[name] = deepcopy(shared[record]) if isinstance(record, int) else record
    return found


@dataclass(frozen=True, eq=False)
class PendingMessage:
    """A message without a reply, and those that were pushed with it."""

    message: Message
    batch: Batch

    @property
    def partition(self) -> int:
        """The client's number."""
        return self.message.metadata.dst_node_id - FIRST_NODE_ID

    @property
    def message_type(self) -> str:
        """The message's type, such as "train"."""
        return self.message.metadata.message_type
