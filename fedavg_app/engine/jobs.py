"""What the driver keeps of the messages on their way, and of the workers they go to."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from flwr.app import ArrayRecord, Message

from fedavg_app.internals import FIRST_NODE_ID


@dataclass(frozen=True, eq=False)
class Batch:
    """What messages that were pushed together have in common.

    Attributes:
        deadline: When their answers are due, on the monotonic clock; infinity for never.
        shared: The records that several of them hold, which travel apart from them.
        reference: Where Ray's object store has these records, or an empty list where it has none.
    """

    deadline: float
    shared: list[ArrayRecord]
    reference: Any


@dataclass(frozen=True, eq=False)
class Job:
    """One message on its way."""

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

    @property
    def message_id(self) -> str:
        """The message's id."""
        return self.message.metadata.message_id


@dataclass(eq=False)
class Hand:
    """One worker, as the driver sees it.

    Attributes:
        number: Its place among the workers; the one that replaces it has the same.
        actor: The Ray actor.
        ready: Whether it has started.
        calls: The references of what it was asked to do and has not answered yet, oldest first.
        queue: Jobs for clients whose state it has.
    """

    number: int
    actor: Any
    ready: bool = False
    calls: deque[Any] = field(default_factory=deque)
    queue: deque[Job] = field(default_factory=deque)
