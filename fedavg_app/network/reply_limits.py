"""How large a reply over the network may be, checked before it is put together.

Flower sends a message as objects that refer to each other: the message, its records, their arrays,
and the arrays' bytes in chunks. An array's object lists the chunks that it is joined from, and may
name one several times; so a few megabytes can claim to be terabytes.
"""

import json
from dataclasses import dataclass

from flwr.app import ArrayRecord

from fedavg_app.network.flower_http import (
    ARRAY,
    ARRAY_CHUNK,
    CHUNK_BYTES,
    StoredObject,
    read_object,
)

# What a reply may have beyond its update: heads, names, numbers, settings.
ALLOWANCE, ALLOWANCE_PER_ARRAY = 256 * 2**10, 2**10
OBJECTS = 64
# Of an object's entry in what announces a reply.
BYTES_PER_OBJECT = 128


class ReplyTooLargeError(ValueError):
    """A reply claims or holds more than the model allows."""


@dataclass(frozen=True)
class ReplyLimits:
    """Upper bounds on one reply.

    Attributes:
        total_bytes: Of all its objects together, and of all its arrays once they are joined.
        rest_bytes: Of what comes beyond the update, among it the head of each object.
        objects: How many objects it is sent as.
    """

    total_bytes: int
    rest_bytes: int
    objects: int

    @classmethod
    def of(cls, model: ArrayRecord, update_bytes: int) -> "ReplyLimits":
        """Return the limits of a run.

        Args:
            model: The global model.
            update_bytes: The most that a client's update may have, as arrays or as bytes in a
                record.
        """
        rest = ALLOWANCE + ALLOWANCE_PER_ARRAY * len(model)
        # Every array may end in a chunk that is not full; names and heads come on top.
        objects = OBJECTS + 2 * len(model) + update_bytes // CHUNK_BYTES
        return cls(update_bytes + rest, rest, objects)

    @property
    def announcement_bytes(self) -> int:
        """Of the message that announces a reply: an entry for each object, and its error."""
        return self.rest_bytes + BYTES_PER_OBJECT * self.objects

    def check_count(self, count: int) -> None:
        """Check the number of objects.

        Raises:
            ReplyTooLargeError: There are too many.
        """
        if count > self.objects:
            raise ReplyTooLargeError(f"{count} objects, at most {self.objects} are expected")


class ReplyMeter:
    """Adds up what has arrived of one reply; its objects come before those that refer to them.

    Args:
        limits: What they are held against.
    """

    def __init__(self, limits: ReplyLimits) -> None:
        self._limits = limits
        self._chunks: dict[str, int] = {}  # bytes by id
        self._stored = self._joined = 0

    @property
    def bytes_left(self) -> int:
        """The most that a next object may have."""
        return self._limits.total_bytes - self._stored

    def add(self, object_id: str, content: bytes) -> None:
        """Take in one object.

        Raises:
            ValueError: It is malformed, or the reply becomes too large with it.
        """
        self._stored += len(content)
        self._check(self._stored, "bytes")
        part = read_object(content, self._limits.rest_bytes)
        if part.kind == ARRAY_CHUNK:
            self._chunks[object_id] = len(part.body)
        elif part.kind == ARRAY:
            self._joined += self._joined_bytes(part)
            self._check(self._joined, "array bytes")

    def _joined_bytes(self, array: StoredObject) -> int:
        """Return the bytes of an array once its chunks are joined."""
        numbers = json.loads(array.body)["arraychunk_ids"]
        self._limits.check_count(len(numbers))
        if not all(type(n) is int and 0 <= n < len(array.children) for n in numbers):
            raise ValueError(
                f"an array names chunks that it does not have: {numbers[:3]} of "
                f"{len(array.children)}"
            )
        return sum(self._chunks[array.children[number]] for number in numbers)

    def _check(self, size: int, what: str) -> None:
        if size > self._limits.total_bytes:
            raise ReplyTooLargeError(
                f"{size} {what}, at most {self._limits.total_bytes} are expected"
            )
