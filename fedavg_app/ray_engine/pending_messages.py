"""Messages on their way, as the driver keeps them."""

import math
from dataclasses import dataclass

from flwr.app import Message

from fedavg_app.flower_internals import FIRST_NODE_ID
from fedavg_app.ray_engine.serialization import SharedRecord


@dataclass(frozen=True, eq=False)
class MessageBatch:
    """What messages that were pushed together have in common.

    Attributes:
        deadline: When the clients must be done, on the monotonic clock; infinity for never.
        due: When the replies must have come: a little later.
        shared: The records that several of the messages hold.
    """

    deadline: float
    due: float
    shared: list[SharedRecord]

    def seconds_left(self, now: float) -> float | None:
        """Return the time until the clients must be done, None for no limit."""
        return None if math.isinf(self.deadline) else self.deadline - now


@dataclass(frozen=True, eq=False)
class PendingMessage:
    """One message without a reply yet."""

    message: Message
    batch: MessageBatch

    @property
    def partition(self) -> int:
        """The client's number."""
        return self.message.metadata.dst_node_id - FIRST_NODE_ID

    @property
    def message_type(self) -> str:
        """The message's type."""
        return self.message.metadata.message_type

    @property
    def message_id(self) -> str:
        """The message's id."""
        return self.message.metadata.message_id
