"""How messages get to a worker: what several share, a stream of objects, and memory for them."""

import ctypes
import os
import pickle
from collections import Counter
from contextlib import suppress
from copy import copy, deepcopy
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from flwr.app import Message, RecordDict

from fedavg_app.flower_internals import FIRST_NODE_ID

# Of glibc's malloc.h.
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4


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


class Stream:
    """Sends and receives objects on a connection of this machine, one after the other.

    Where `multiprocessing` makes all of a message before it is sent, and joins it again after it
    has come, here the arrays of a model go from their own memory, and arrive in it.

    Args:
        connection: The connection, which is closed; the stream keeps its socket.
    """

    def __init__(self, connection: "Connection[Any, Any]") -> None:
        with connection:
            self._reader = os.fdopen(os.dup(connection.fileno()), "rb")
            self._writer = os.fdopen(os.dup(connection.fileno()), "wb")

    def send(self, value: object) -> None:
        """Send an object; OSError if nobody is there to receive it."""
        pickle.dump(value, self._writer, pickle.HIGHEST_PROTOCOL)
        self._writer.flush()

    def receive(self) -> Any:
        """Return the next object; EOFError or OSError if the other end was closed."""
        try:
            return pickle.load(self._reader)  # noqa: S301 - our own processes'
        except pickle.UnpicklingError as error:
            raise EOFError("it was closed within an object") from error

    def fileno(self) -> int:
        """Return the file that `multiprocessing.connection.wait` waits for."""
        return self._reader.fileno()

    def close(self) -> None:
        """Close this end."""
        for file in (self._reader, self._writer):
            with suppress(OSError):  # of what was not sent to an end that is closed
                file.close()


def keep_freed_memory() -> None:
    """Make this process's malloc use freed memory again, where it would give it back to Linux.

    Otherwise every block of 32 MB and more is new memory, and Linux takes longer to give it, in
    pages of 4 kB, than a model takes to be received. The process keeps its largest size until it
    ends, or 2 GB more than it uses. Nothing happens where the C library is not glibc.
    """
    with suppress(AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(M_MMAP_MAX, 0)
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
