"""The bytes of a secure sum's stages, as docs/protocol.md has them.

A client's place is its number in the round's cohort, from 0. The server's message is a head and a
body; a reply is a body alone, except that of the masked numbers. Numbers are little-endian.
"""

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from ..compression.decoded_update import DecodeError
from .primitives import KEY, SHARE, SIGNATURE, TAG

_HEAD = struct.Struct("<BBBIIHH")
_VERSION = 1
_PLACE = struct.Struct("<H")
# Begins the message that has the model: the seed of the positions, and c.
GRID = struct.Struct("<Qf")
# A client's two public keys; and, where clients sign, its clock, its signing key and its signature.
KEYS = 2 * KEY
SIGNED_KEYS = KEYS + 8 + KEY + SIGNATURE
# Two shares, encrypted.
SEALED = 2 * SHARE + TAG


class Stage(IntEnum):
    """The stages of a round, in their order."""

    ADVERTISE = 1  # clients send two public keys
    SHARE = 2  # they share their secrets, encrypted for one another
    MASK = 3  # they train, and send masked numbers
    SIGN = 4  # they sign the set of clients whose numbers arrived, where clients sign
    UNMASK = 5  # they send the shares that unmask the sum over that set


@dataclass(frozen=True)
class Request:
    """The head of a stage's message.

    Attributes:
        stage: The stage.
        signed: Whether clients sign.
        training: A number of the training.
        number: The round's.
        place: The client's.
        cohort: n, how many clients were asked for keys.
        body: What follows.
    """

    stage: Stage
    signed: bool
    training: int
    number: int
    place: int
    cohort: int
    body: bytes = b""

    def encode(self) -> bytes:
        """Return the message."""
        own = self.training, self.number, self.place, self.cohort
        return _HEAD.pack(_VERSION, self.stage, self.signed, *own) + self.body

    @classmethod
    def decode(cls, data: bytes) -> "Request":
        """Return the message that the bytes encode; DecodeError if they are none."""
        if len(data) < _HEAD.size:
            raise DecodeError(f"a stage's message has {len(data)} bytes, its head {_HEAD.size}")
        version, stage, signed, *own = map(int, _HEAD.unpack_from(data))
        if version != _VERSION or stage not in list(Stage) or signed > 1:
            raise DecodeError(f"stage {stage} of version {version} of secure sums is unknown")
        training, number, place, cohort = own
        body = data[_HEAD.size :]
        return cls(Stage(stage), bool(signed), training, number, place, cohort, body)

    @property
    def threshold(self) -> int:
        """t, how many clients must complete each stage."""
        return threshold(self.cohort)


def threshold(cohort: int) -> int:
    """Return t = floor(2 n / 3) + 1, at least 2.

    Two sets of so many clients, which a server shows to different clients, have more than n / 3
    clients in common; each of these would have to sign both (Bonawitz et al. 2017, section 6).
    """
    return max(2 * cohort // 3 + 1, 2)


def write_rows(rows: Mapping[int, bytes]) -> bytes:
    """Return rows by place as bytes, in the order of the places."""
    return b"".join(_PLACE.pack(place) + rows[place] for place in sorted(rows))


def read_rows(data: bytes, size: int) -> dict[int, bytes]:
    """Return the rows, of ``size`` bytes each beside the place.

    Raises:
        DecodeError: They end early, or their places do not rise.
    """
    step = _PLACE.size + size
    if len(data) % step:
        raise DecodeError(f"{len(data)} bytes are no rows of {step}")
    rows, last = dict[int, bytes](), -1
    for start in range(0, len(data), step):
        (place,) = _PLACE.unpack_from(data, start)
        if place <= last:
            raise DecodeError(f"place {place} follows place {last}")
        rows[place], last = data[start + _PLACE.size : start + step], place
    return rows


def write_places(places: Iterable[int]) -> bytes:
    """Return a set of places as bytes."""
    return write_rows(dict.fromkeys(places, b""))


def write_survivors(places: Iterable[int], signatures: Mapping[int, bytes]) -> bytes:
    """Return the set of clients whose numbers arrived, and those that signed it, as bytes."""
    listed = write_places(places)
    return _PLACE.pack(len(listed) // _PLACE.size) + listed + write_rows(signatures)


def read_survivors(data: bytes) -> tuple[bytes, dict[int, bytes]]:
    """Return the set as bytes, and the signatures by place; DecodeError as for `read_rows`."""
    if len(data) < _PLACE.size:
        raise DecodeError("the set of survivors is missing")
    end = _PLACE.size * (1 + _PLACE.unpack_from(data)[0])
    return data[_PLACE.size : end], read_rows(data[end:], SIGNATURE)


def read_places(data: bytes) -> set[int]:
    """Return the places; DecodeError as for `read_rows`."""
    return set(read_rows(data, 0))
