"""Python objects as bytes for a connection, with shared records sent once.

A round's messages carry the same model to every client, or the same updates to those who missed
them. Each worker is sent them once; the bytes of a message only name them.
"""

import pickle
from collections.abc import Sequence
from io import BytesIO
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message

MIN_SHARED_BYTES = 2**18
# Records of arrays, or of settings and bytes.
SharedRecord = ArrayRecord | ConfigRecord


def shared_records(messages: Sequence[Message]) -> list[SharedRecord]:
    """Return the large records that more than one message holds.

    Small ones are pickled once for each worker, along with the messages to it.
    """
    seen: set[int] = set()
    shared: dict[int, SharedRecord] = {}
    for message in messages:
        for record in message.content.values():
            if not isinstance(record, SharedRecord):
                continue
            if id(record) in seen:
                shared[id(record)] = record
            seen.add(id(record))
    return [record for record in shared.values() if _size(record) >= MIN_SHARED_BYTES]


def dumps(content: Any, shared: Sequence[SharedRecord] = ()) -> bytes:
    """Return ``content`` as bytes that `loads` reads, given records equal to ``shared``."""
    if not shared:
        return pickle.dumps(content, protocol=pickle.HIGHEST_PROTOCOL)
    file = BytesIO()
    _Pickler(file, shared).dump(content)
    return file.getvalue()


def loads(data: bytes, shared: Sequence[SharedRecord] = ()) -> Any:
    """Return the content. It comes from this run's own processes: unpickling it is safe."""
    return _Unpickler(BytesIO(data), shared).load()


def _size(record: SharedRecord) -> int:
    """Return the bytes of a record's arrays and of its entries of bytes."""
    if isinstance(record, ArrayRecord):
        return sum(len(array.data) for array in record.values())
    return sum(len(value) for value in record.values() if isinstance(value, bytes))


class _Pickler(pickle.Pickler):
    def __init__(self, file: BytesIO, shared: Sequence[SharedRecord]) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._numbers = {id(record): number for number, record in enumerate(shared)}

    def persistent_id(self, obj: Any) -> int | None:
        """Return a shared record's number, to be written in its place."""
        return self._numbers.get(id(obj))


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: BytesIO, shared: Sequence[SharedRecord]) -> None:
        super().__init__(file)
        self._shared = shared

    def persistent_load(self, pid: int) -> SharedRecord:
        """Return the shared record of that number."""
        return self._shared[pid]
