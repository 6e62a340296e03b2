"""How much memory the objects of a message take once they are read, found before they are read.

A message is a tree of objects (Flower's `InflatableObject`). An object may name another many times,
and an empty item of a protobuf takes 30 times its bytes. So sizes count each object as often as it
is named, and for each item what it takes beside its bytes.
"""

import json
import math
from collections import Counter, OrderedDict
from typing import Any, NamedTuple

from flwr.proto.message_pb2 import Message
from flwr.proto.recorddict_pb2 import ConfigRecord, MetricRecord

# What an object, a record's entry or a protobuf in another takes, and a number or a sign of JSON.
ITEM_BYTES, NUMBER_BYTES = 256, 64
_PROTOBUFS: dict[str, Any] = {
    "Message": Message, "ConfigRecord": ConfigRecord, "MetricRecord": MetricRecord,
}  # fmt: skip
_JSON = ("Array", "ArrayRecord", "RecordDict")
_VARINT, _FIXED, _LENGTH = 0, {1: 8, 5: 4}, 2  # the types of a field on the wire


class Part(NamedTuple):
    """An object without what it refers to."""

    size: int  # its bytes, and what its items take beside
    children: list[str]  # the ids of the objects that it refers to
    names: Counter[str]  # how often it names each of them


def read_part(content: bytes, most: float = math.inf) -> Part:
    """Return what an object's bytes say, if they take no more than ``most`` bytes.

    Raises:
        ValueError: They take more, or are malformed.
    """
    try:
        return _read_part(content, most)
    except Exception as error:  # whatever JSON and Python raise for a device's bytes
        raise ValueError(f"malformed object: {type(error).__name__}: {error}") from error


def _read_part(content: bytes, most: float) -> Part:
    end = content.index(b"\0")
    size = len(content) + ITEM_BYTES * (1 + content.count(b",", 0, end))
    _check(size, most)
    kind, ids, length = content[:end].decode().split(" ")
    body = memoryview(content)[end + 1 :]
    children = ids.split(",") if ids else []
    names = Counter(children)
    if kind in _PROTOBUFS:
        size += protobuf_size(body, _PROTOBUFS[kind].DESCRIPTOR, most - size)
    elif kind in _JSON:
        text = bytes(body)
        size += NUMBER_BYTES * sum(map(text.count, (b",", b":", b"[", b"{")))
        _check(size, most)
        named = json.loads(text)
        if kind == "Array":  # names its chunks by their numbers, a record its parts by their ids
            numbers = Counter(named["arraychunk_ids"])
            named = {number: children[number] for number in numbers if number >= 0}
            names = Counter({named[number]: count for number, count in numbers.items()})
        else:
            names = Counter(named.values())
    elif kind != "ArrayChunk":
        raise ValueError("there are no such objects")
    if int(length) != len(body):
        raise ValueError("its head has another length")
    if set(names) != set(children) or len(set(children)) != len(children):
        raise ValueError("it names others than it has, or not all of them")
    return Part(size, children, names)


def protobuf_size(data: memoryview, kind: Any, most: float) -> int:
    """Return the bytes that a protobuf's items take beside its own.

    Args:
        data: The protobuf.
        kind: Its descriptor.
        most: The most that it may take.

    Raises:
        ValueError: It takes more, or is malformed.
    """
    size, inner = 0, [(data, kind)]
    while inner:
        data, kind = inner.pop()
        at = 0
        while at < len(data):
            size += NUMBER_BYTES
            tag, at = _varint(data, at)
            field, wire = kind.fields_by_number.get(tag >> 3), tag & 7
            if wire == _VARINT:
                _, at = _varint(data, at)
            elif wire == _LENGTH:
                length, at = _varint(data, at)
                value, at = data[at : at + length], at + length
                if field is not None and field.message_type:
                    size += ITEM_BYTES
                    inner.append((value, field.message_type))
                elif field is not None and field.type not in (field.TYPE_STRING, field.TYPE_BYTES):
                    width = 8 if field.type == field.TYPE_DOUBLE else 1
                    size += NUMBER_BYTES * (length // width)  # a list of numbers
            else:
                at += _FIXED[wire]
            _check(size, most)
        if at > len(data):
            raise ValueError("it ends within a field")
    return size


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """Return the number that begins there, and where the next field begins."""
    value = shift = 0
    while (byte := data[at]) & 0x80:
        value, shift, at = value | (byte & 0x7F) << shift, shift + 7, at + 1
        if shift > 63:
            raise ValueError("a number of more than 64 bits")
    return value | byte << shift, at + 1


def _check(size: float, most: float) -> None:
    if size > most:
        raise ValueError(f"it takes more than {most:.0f} bytes")


class Objects:
    """What objects unfold to: all that they refer to counts as often as it is named.

    Args:
        most: How many are remembered, the newest.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._sizes: OrderedDict[str, Part | int] = OrderedDict()

    def add(self, object_id: str, part: Part) -> None:
        """Note an object."""
        self._sizes[object_id] = part
        while len(self._sizes) > self._most:
            self._sizes.popitem(last=False)

    def size(self, object_id: str) -> int:
        """Return the bytes that an object unfolds to.

        Raises:
            KeyError: It was not noted, or something that it refers to was not.
        """
        found = self._sizes[object_id]
        if isinstance(found, Part):
            parts = (count * self.size(child) for child, count in found.names.items())
            found = self._sizes[object_id] = found.size + sum(parts)
        return found
