"""What keeps clients' copies of the global model equal to the server's: versions, and their bytes.

docs/protocol.md specifies them for other languages. A *version* of the global model is the number
of the round that made it (0 is the initial model), with a fingerprint: the CRC-32 of its trained
arrays' bytes. So a client that decodes an update to other values than the server notices at once.
"""

import struct
import zlib
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from strategies.compression.decoded_update import DecodeError, Vector

PROTOCOL = 5

_HEAD = struct.Struct("<BIIII")
_UPDATE = struct.Struct("<II")
_REPLY = struct.Struct("<BBII")


class ReplyStatus(IntEnum):
    """What a client's reply says.

    Attributes:
        UPDATE: An update follows.
        NEEDS_MODEL: The client has no model that the message's updates lead on from.
        DIVERGED: Its training gave NaN, infinite or enormous values; nothing is sent.
        FIRST_UPDATE: An update follows, made with an empty memory: what the server keeps of the
            client's earlier ones (`update_sum`) does not count any more.
    """

    UPDATE = 0
    NEEDS_MODEL = 1
    DIVERGED = 2
    FIRST_UPDATE = 3


@dataclass(frozen=True)
class Version:
    """A version of the global model: the round that made it, and a fingerprint of 32 bits."""

    number: int
    fingerprint: int

    @classmethod
    def of(cls, number: int, vector: Vector) -> "Version":
        """Return the version of the model that a round made, float32 (n,)."""
        return cls(number, zlib.crc32(np.ascontiguousarray(vector, "<f4").data))


@dataclass(frozen=True)
class Head:
    """The head of a training message.

    Attributes:
        codec: The digest of what both ends compress with (`strategies.codec`).
        accepted: The last round whose update from this client was accepted, 0 for none.
        version: What the client's model must be once it has read the message.
    """

    codec: int
    accepted: int
    version: Version

    def encode(self) -> bytes:
        """Return the head's 17 bytes."""
        version = self.version.number, self.version.fingerprint
        return _HEAD.pack(PROTOCOL, self.codec, self.accepted, *version)

    @classmethod
    def decode(cls, data: bytes) -> "Head":
        """Return the head that the bytes encode; DecodeError for another length or protocol."""
        if len(data) != _HEAD.size:
            raise DecodeError(f"the head has {len(data)} bytes, not {_HEAD.size}")
        protocol, codec, accepted, number, fingerprint = _HEAD.unpack(data)
        _check_protocol(protocol)
        return cls(codec, accepted, Version(number, fingerprint))


@dataclass(frozen=True)
class ModelUpdate:
    """An encoded update of the global model, and the version that it leads to."""

    number: int
    data: bytes

    def encode(self) -> bytes:
        """Return number, length and bytes of the update."""
        return _UPDATE.pack(self.number, len(self.data)) + self.data

    def __len__(self) -> int:
        return _UPDATE.size + len(self.data)


def decode_updates(data: bytes) -> list[ModelUpdate]:
    """Return a training message's updates; DecodeError if one ends early or is out of order."""
    updates: list[ModelUpdate] = []
    start = 0
    while start < len(data):
        if len(data) - start < _UPDATE.size:
            raise DecodeError("the list of updates ends within an update's head")
        number, length = _UPDATE.unpack_from(data, start)
        start += _UPDATE.size
        if length > (left := len(data) - start):
            raise DecodeError(f"update {number} claims {length} bytes, {left} are left")
        if updates and number <= updates[-1].number:
            raise DecodeError(f"update {number} follows update {updates[-1].number}")
        updates.append(ModelUpdate(number, data[start : start + length]))
        start += length
    return updates


class ClientVersions:
    """The server's side of the protocol that updates clients' models (docs/protocol.md).

    It keeps the last updates, as many as together are smaller than the full model.

    Attributes:
        current: The current version.
        confirmed: By node, the number of the version that it has, and how many updates there were
            by then.
        accepted: By node, the round of its last accepted update. Kept for nodes that lost their
            model, too: they may still hold the update that this settles.
    """

    def __init__(self) -> None:
        self.confirmed: dict[int, tuple[int, int]] = {}
        self.accepted: dict[int, int] = {}
        self.start_from(0, np.empty(0, np.float32))

    def start_from(self, number: int, vector: Vector) -> None:
        """Begin with a model, float32 (n,), that no client has yet."""
        self.current, self._count = Version.of(number, vector), 0
        self._oldest = number  # the version that the first update kept leads on from
        self._max_bytes = vector.nbytes
        self._updates: deque[ModelUpdate] = deque()
        self.confirmed.clear()

    def confirm(self, nodes: Iterable[int], server_round: int) -> None:
        """Record that these clients trained from the current version, and that it was accepted."""
        for node in nodes:
            self.confirmed[node] = self.current.number, self._count
            self.accepted[node] = server_round

    def append(self, server_round: int, data: bytes, vector: Vector) -> None:
        """Add the update of a round, which led to the model ``vector``."""
        self.current = Version.of(server_round, vector)
        self._count += 1
        self._updates.append(ModelUpdate(server_round, data))
        while self._updates and sum(map(len, self._updates)) >= self._max_bytes:
            self._oldest = self._updates.popleft().number

    def following(self, node: int) -> int | None:
        """Return the version from which the client can follow; None if it needs the full model."""
        number, _ = self.confirmed.get(node, (-1, 0))
        return number if number >= self._oldest else None

    def num_missed(self, node: int) -> int | None:
        """Return how many updates the client missed; None where it has no model."""
        return self._count - self.confirmed[node][1] if node in self.confirmed else None

    def updates_since(self, number: int) -> bytes:
        """Return the encoded updates since the version of that number."""
        return b"".join(update.encode() for update in self._updates if update.number > number)


@dataclass(frozen=True)
class Payload:
    """What a client's reply says.

    Attributes:
        status: Whether an update follows.
        codec: The digest of what the client compresses with.
        server_round: The round that it answers.
        update: The encoded update; empty without one.
    """

    status: ReplyStatus
    codec: int
    server_round: int
    update: bytes = b""

    def encode(self) -> bytes:
        """Return 10 bytes and the update."""
        return _REPLY.pack(PROTOCOL, self.status, self.codec, self.server_round) + self.update

    @classmethod
    def decode(cls, data: bytes) -> "Payload":
        """Return the payload that the bytes encode.

        Raises:
            DecodeError: Too short, another protocol, an unknown status, or bytes after a status
                that has no update.
        """
        if len(data) < _REPLY.size:
            raise DecodeError(
                f"the payload has {len(data)} bytes, its head alone takes {_REPLY.size}"
            )
        protocol, status, codec, server_round = _REPLY.unpack_from(data)
        _check_protocol(protocol)
        if status not in list(ReplyStatus):
            raise DecodeError(f"unknown status {status}")
        update = data[_REPLY.size :]
        if update and status not in (ReplyStatus.UPDATE, ReplyStatus.FIRST_UPDATE):
            raise DecodeError(f"{len(update)} bytes follow a status without an update")
        return cls(ReplyStatus(status), codec, server_round, update)


def _check_protocol(protocol: int) -> None:
    if protocol != PROTOCOL:
        raise DecodeError(f"protocol {protocol}, this end speaks {PROTOCOL}")
