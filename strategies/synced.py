"""How compressed strategies keep a client's copy of the model equal to the server's: the bytes.

Both ends share this: the records' names, the head of a message and the chain of updates in it.
docs/protocol.md specifies them for other languages. No Flower import; Flower is at the two ends,
`strategies.compressed` (server) and `strategies.compressed_client`.

A *version* of the global model is the number of the round that made it (0 is the initial model),
with a fingerprint: the CRC-32 of the bytes of every update since the model was last whole, chained.
"""

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from strategies.compression.update import CodecError

PROTOCOL = 1
# Records and arrays of the messages.
SYNC, HEAD, UPDATES = "sync", "head", "updates"
UPDATE, PAYLOAD = "update", "payload"
# No honest update comes near; below it, sums over any number of rounds stay finite.
LARGEST_CHANGE = 2.0**64

_HEAD = struct.Struct("<BIII")
_ENTRY = struct.Struct("<II")
_REPLY = struct.Struct("<BBI")
HAS_UPDATE, NEEDS_MODEL = 0, 1


@dataclass(frozen=True)
class Version:
    """One state of the global model.

    Attributes:
        number: The round that made it.
        fingerprint: 32 bits that tell it from others of the same number.
    """

    number: int
    fingerprint: int

    def after(self, number: int, update: bytes) -> "Version":
        """Return the version that ``update``, made in round ``number``, turns this one into."""
        return Version(number, zlib.crc32(update, self.fingerprint))


@dataclass(frozen=True)
class Head:
    """What every training message begins with.

    Attributes:
        accepted: The last round whose update from this client was accepted, 0 for none.
        version: What the client's model must be after it has read the message.
    """

    accepted: int
    version: Version

    def encode(self) -> bytes:
        """Return the head's 13 bytes."""
        return _HEAD.pack(PROTOCOL, self.accepted, self.version.number, self.version.fingerprint)

    @classmethod
    def decode(cls, data: bytes) -> "Head":
        """Return the head that the bytes encode.

        Raises:
            CodecError: Another length, or another protocol.
        """
        if len(data) != _HEAD.size:
            raise CodecError(f"the head has {len(data)} bytes, not {_HEAD.size}")
        protocol, accepted, number, fingerprint = _HEAD.unpack(data)
        _check_protocol(protocol)
        return cls(accepted, Version(number, fingerprint))


@dataclass(frozen=True)
class Entry:
    """One update of the global model in a chain: the version it leads to, and its bytes."""

    number: int
    update: bytes

    def encode(self) -> bytes:
        """Return number, length and bytes of the update."""
        return _ENTRY.pack(self.number, len(self.update)) + self.update

    def __len__(self) -> int:
        return _ENTRY.size + len(self.update)


def decode_chain(data: bytes) -> list[Entry]:
    """Return the entries of a chain, whose numbers must rise.

    Raises:
        CodecError: The bytes end within an entry, or numbers do not rise.
    """
    entries: list[Entry] = []
    start = 0
    while start < len(data):
        if len(data) - start < _ENTRY.size:
            raise CodecError("the chain of updates ends within an entry's head")
        number, length = _ENTRY.unpack_from(data, start)
        start += _ENTRY.size
        if length > len(data) - start:
            raise CodecError(f"update {number} claims {length} bytes, {len(data) - start} are left")
        if entries and number <= entries[-1].number:
            raise CodecError(f"update {number} follows update {entries[-1].number}")
        entries.append(Entry(number, data[start : start + length]))
        start += length
    return entries


def missing(have: Version, chain: Sequence[Entry], version: Version) -> list[Entry] | None:
    """Return the entries that lead from ``have`` to ``version``; None where they do not."""
    ahead = [entry for entry in chain if entry.number > have.number]
    reached = have
    for entry in ahead:
        reached = reached.after(entry.number, entry.update)
    return ahead if reached == version else None


def encode_reply(status: int, version: int, update: bytes = b"") -> bytes:
    """Return a client's payload: protocol, status, the version it trained from, its update."""
    return _REPLY.pack(PROTOCOL, status, version) + update


def decode_reply(data: bytes) -> tuple[int, int, bytes]:
    """Return (status, version, the update's bytes) of a client's payload.

    Raises:
        CodecError: Too short, another protocol, or an unknown status.
    """
    if len(data) < _REPLY.size:
        raise CodecError(f"the payload has {len(data)} bytes, its head alone takes {_REPLY.size}")
    protocol, status, version = _REPLY.unpack_from(data)
    _check_protocol(protocol)
    if status not in (HAS_UPDATE, NEEDS_MODEL):
        raise CodecError(f"unknown status {status}")
    return status, version, data[_REPLY.size :]


def _check_protocol(protocol: int) -> None:
    if protocol != PROTOCOL:
        raise CodecError(f"protocol {protocol}, this end speaks {PROTOCOL}")
