"""Messages as bytes, with the large records that several of them share kept apart.

A round's messages carry the same model to every client. It is pickled once and put into Ray's
object store once; the bytes of a message only name it.
"""

import pickle
from collections.abc import Sequence
from io import BytesIO
from typing import Any

from flwr.app import ArrayRecord, Message

# Ray sends arguments below this size along with the call, which is faster than its object store.
INLINE_BYTES = 100_000


def shared_records(messages: Sequence[Message]) -> list[ArrayRecord]:
    """Return the records that more than one message holds; none where they are small."""
    seen: dict[int, ArrayRecord] = {}
    shared: dict[int, ArrayRecord] = {}
    for message in messages:
        for record in message.content.array_records.values():
            (shared if id(record) in seen else seen)[id(record)] = record
    size = sum(len(array.data) for record in shared.values() for array in record.values())
    return list(shared.values()) if size >= INLINE_BYTES else []


def pack(messages: Sequence[Message], shared: Sequence[ArrayRecord] = ()) -> bytes:
    """Return the messages as bytes that `unpack` reads, given records equal to ``shared``."""
    if not shared:
        return pickle.dumps(messages, protocol=pickle.HIGHEST_PROTOCOL)
    file = BytesIO()
    _Pickler(file, shared).dump(messages)
    return file.getvalue()


def unpack(data: bytes, shared: Sequence[ArrayRecord] = ()) -> list[Message]:
    """Return the messages; they come from this run's own processes, so unpickling is safe."""
    messages: list[Message] = _Unpickler(BytesIO(data), shared).load()
    return messages


class _Pickler(pickle.Pickler):
    def __init__(self, file: BytesIO, shared: Sequence[ArrayRecord]) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._numbers = {id(record): number for number, record in enumerate(shared)}

    def persistent_id(self, obj: Any) -> int | None:
        """Return the record's number instead of its content."""
        return self._numbers.get(id(obj))


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: BytesIO, shared: Sequence[ArrayRecord]) -> None:
        super().__init__(file)
        self._shared = shared

    def persistent_load(self, pid: int) -> ArrayRecord:
        """Return the record of that number."""
        return self._shared[pid]
