"""Messages on their way to a worker: what they share once, and a line for each."""

import pickle
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from fedavg_app.flower_internals import FIRST_NODE_ID

Record = ArrayRecord | ConfigRecord | MetricRecord
# A message without its content; and the name of each of its records, with the record or, where
# several messages hold it, its number among the shared ones.
Line = tuple[Message, list[tuple[str, Record | int]]]


class Batch:
    """Messages that were pushed together.

    Args:
        messages: The messages.
        deadline: When their clients must be done, on the monotonic clock; infinity for never.
        due: When the driver answers in place of those that are not, a little later.

    Attributes:
        numbers: The place of each record that several messages hold, by its `id`.
        waiting: The messages without a reply, by their ids.
    """

    def __init__(self, messages: list[Message], deadline: float, due: float) -> None:
        self.deadline, self.due = deadline, due
        seen: set[int] = set()
        shared: dict[int, Record] = {}
        for message in messages:
            for record in message.content.values():
                if id(record) in seen:
                    shared[id(record)] = record
                seen.add(id(record))
        self._shared = list(shared.values())
        self.numbers = {key: number for number, key in enumerate(shared)}
        self.waiting = {one.metadata.message_id: PendingMessage(one, self) for one in messages}

    @cached_property
    def shared(self) -> bytes:
        """The pickled records that several of the messages hold."""
        return pickle.dumps(self._shared, pickle.HIGHEST_PROTOCOL)


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
    def kind(self) -> str:
        """The message's type."""
        return self.message.metadata.message_type

    def line(self) -> Line:
        """Return what a worker makes the message from that it gives to the client."""
        empty = copy(self.message)
        empty.content = RecordDict()
        records = self.message.content.items()
        return empty, [(name, self.batch.numbers.get(id(one), one)) for name, one in records]


def make_message(line: Line, shared: list[Record]) -> Message:
    """Return the message of a line, with records of its own."""
    message, records = line
    for name, record in records:
        message.content[name] = own_record(shared[record] if isinstance(record, int) else record)
    return message


def own_record(record: Record) -> Record:
    """Return a copy that may be changed in every way; the bytes in it are not copied."""
    copied: Any = record.copy()
    for name, value in record.items():
        if isinstance(value, Array | list):
            copied[name] = copy(value)
    return cast(Record, copied)


def own_records(content: RecordDict) -> RecordDict:
    """Return a copy of the dictionary and of its records, as of `own_record`."""
    copied = content.copy()
    for name, record in content.items():
        copied[name] = own_record(record)
    return copied
