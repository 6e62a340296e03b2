"""What keeps clients' copies of the global model equal to the server's: bytes, and who lacks what.

docs/protocol.md specifies the bytes. The fingerprint of a version tells a client at once if it
decodes an update to other values than the server.
"""

import struct
import zlib
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .decoded_update import DecodeError

PROTOCOL = 7

_HEAD = struct.Struct("<BIIBII")
_UPDATE = struct.Struct("<II")
_REPLY = struct.Struct("<BBII")


class ReplyStatus(IntEnum):
    """What a client's reply says."""

    UPDATE = 0  # an update follows
    NEEDS_MODEL = 1  # the client has no model that the message's updates lead on from
    DIVERGED = 2  # its training gave NaN, infinite or enormous values


@dataclass(frozen=True)
class Version:
    """A version of the global model: the round that made it (0: none did), its CRC-32."""

    number: int
    fingerprint: int

    @classmethod
    def of(cls, number: int, vector: NDArray[Any]) -> "Version":
        """Return the version of the model that a round made, float32 or float64 (n,)."""
        little_endian = np.ascontiguousarray(vector, vector.dtype.newbyteorder("<"))
        return cls(number, zlib.crc32(little_endian.data))


@dataclass(frozen=True)
class Head:
    """The head of a training message.

    Attributes:
        codec: The digest of the codec (`strategies.compression.codec`).
        settled: The last round whose update from this client was accepted or refused for good, 0
            for none.
        refused: Whether it was refused.
        version: The version that the client must have after it has read the message.
    """

    codec: int
    settled: int
    refused: bool
    version: Version

    def encode(self) -> bytes:
        """Return the head's 18 bytes."""
        version = self.version.number, self.version.fingerprint
        return _HEAD.pack(PROTOCOL, self.codec, self.settled, self.refused, *version)

    @classmethod
    def decode(cls, data: bytes) -> "Head":
        """Return the head that the bytes encode.

        Raises:
            DecodeError: Another length or protocol, or the flag is neither 0 nor 1.
        """
        if len(data) != _HEAD.size:
            raise DecodeError(f"the head has {len(data)} bytes, not {_HEAD.size}")
        protocol, codec, settled, refused, number, fingerprint = _HEAD.unpack(data)
        _check_protocol(protocol)
        if refused > 1:
            raise DecodeError(f"the flag of a refusal is {refused}, neither 0 nor 1")
        return cls(codec, settled, bool(refused), Version(number, fingerprint))


def encode_update(number: int, data: bytes) -> bytes:
    """Return an update of the global model, and the version that it leads to, as bytes."""
    return _UPDATE.pack(number, len(data)) + data


def decode_updates(data: bytes) -> list[tuple[int, bytes]]:
    """Return a training message's updates as (the version that an update leads to, its bytes).

    Raises:
        DecodeError: An update ends early or is out of order.
    """
    updates: list[tuple[int, bytes]] = []
    start = 0
    while start < len(data):
        if len(data) - start < _UPDATE.size:
            raise DecodeError("the list of updates ends within an update's head")
        number, length = _UPDATE.unpack_from(data, start)
        start += _UPDATE.size
        if length > (left := len(data) - start):
            raise DecodeError(f"update {number} claims {length} bytes, {left} are left")
        if updates and number <= (last := updates[-1][0]):
            raise DecodeError(f"update {number} follows update {last}")
        updates.append((number, data[start : start + length]))
        start += length
    return updates


@dataclass(frozen=True)
class Payload:
    """What a client's reply says.

    Attributes:
        status: Whether an update follows.
        codec: The digest of the client's codec.
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
        if update and status != ReplyStatus.UPDATE:
            raise DecodeError(f"{len(update)} bytes follow a status without an update")
        return cls(ReplyStatus(status), codec, server_round, update)


def _check_protocol(protocol: int) -> None:
    if protocol != PROTOCOL:
        raise DecodeError(f"protocol {protocol}, this end speaks {PROTOCOL}")


class MissedUpdates:
    """The server's side of the protocol that updates clients' models (docs/protocol.md).

    It keeps the last updates, as many as together are smaller than the full model in float32.

    Attributes:
        current: The current version.
        confirmed: By node, the number of the version that it has, and how many updates there were
            by then.
        offered: By round, the version that clients had once they had read its message, as in
            ``confirmed``; of the rounds whose replies may still come.
    """

    def __init__(self) -> None:
        self.confirmed: dict[int, tuple[int, int]] = {}
        self.offered: dict[int, tuple[int, int]] = {}
        self.start_from(0, np.empty(0, np.float32))

    def start_from(self, number: int, vector: NDArray[Any]) -> None:
        """Begin with a model, (n,), that no client has yet."""
        self.current, self._count = Version.of(number, vector), 0
        self._oldest = number  # the version that the first update kept leads on from
        self._max_bytes = 4 * vector.size  # in float32, as updates are
        self._updates: deque[tuple[int, bytes]] = deque()
        self._joined: dict[int, bytes] = {}  # the updates since a version, for clients alike
        self.confirmed.clear()
        self.offered.clear()

    def is_current(self, vector: NDArray[Any]) -> bool:
        """Return whether the model is the current version."""
        return Version.of(self.current.number, vector) == self.current

    def offer(self, server_round: int, keep: int) -> None:
        """Record that a round's clients are sent the current version, and ``keep`` rounds more."""
        self.offered.setdefault(server_round, (self.current.number, self._count))
        for number in [offered for offered in self.offered if offered < server_round - keep]:
            del self.offered[number]

    def confirm(self, answered: Mapping[int, int]) -> None:
        """Record, by node, the round of which a client has the version."""
        for node, number in answered.items():
            self.confirmed[node] = self.offered[number]

    def confirm_model(self, node: int) -> None:
        """Record that a client has the current version."""
        self.confirmed[node] = self.current.number, self._count

    def append(self, server_round: int, data: bytes, vector: NDArray[Any]) -> None:
        """Add the update of a round, which led to the model ``vector``."""
        self.current = Version.of(server_round, vector)
        self._joined.clear()
        self._count += 1
        self._updates.append((server_round, encode_update(server_round, data)))
        while self._updates and sum(len(update) for _, update in self._updates) >= self._max_bytes:
            self._oldest, _ = self._updates.popleft()

    def following(self, node: int) -> int | None:
        """Return the version from which the client can follow; None if it needs the full model."""
        number, _ = self.confirmed.get(node, (-1, 0))
        return number if number >= self._oldest else None

    def num_missed(self, node: int) -> int | None:
        """Return how many updates the client missed; None where it has no model."""
        return self._count - self.confirmed[node][1] if node in self.confirmed else None

    def updates_since(self, number: int) -> bytes:
        """Return the encoded updates since the version of that number."""
        if number not in self._joined:
            later = (update for made, update in self._updates if made > number)
            self._joined[number] = b"".join(later)
        return self._joined[number]
