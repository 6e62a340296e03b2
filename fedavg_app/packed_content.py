"""A message's content in as few objects as possible, for grids over the network.

Flower sends every record, array and chunk of an array as a separate object, each with a signed
request, of which a SuperLink serves some 50 a second. Here the whole content is the only entry of
one record; the client's outermost step, and the server's grid, put the records back before anything
else sees them. A content that is too large for one object is an array of bytes, which Flower cuts
into chunks of 5 MiB.
"""

import math
from collections.abc import Iterable

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

from fedavg_app.flower_internals import content_from_bytes, content_size, content_to_bytes
from strategies.rounds.flower_arrays import records_of

RECORD, ENTRY = "packed", "content"
# The largest content that is one object; the SuperLink's gate takes 8 MiB.
MAX_OBJECT_BYTES = 2**23 - 2**16
# More bytes of arrays go as Flower sends them, to be copied once less.
MAX_ARRAY_BYTES = 32 * 2**20


def pack(content: RecordDict) -> RecordDict:
    """Return the content as one record, beside which large arrays stay as they are."""
    arrays = records_of(content, ArrayRecord)
    if (
        sum(len(array.data) for record in arrays.values() for array in record.values())
        <= MAX_ARRAY_BYTES
    ):
        arrays = {}
    others = {name: record for name, record in content.items() if name not in arrays}
    data = content_to_bytes(RecordDict(others))
    if len(data) <= MAX_OBJECT_BYTES:
        return RecordDict({RECORD: ConfigRecord({ENTRY: data}), **arrays})
    packed = Array("uint8", (len(data),), RECORD, data)
    return RecordDict({RECORD: ArrayRecord({ENTRY: packed}), **arrays})


def pack_all(contents: Iterable[RecordDict]) -> list[RecordDict]:
    """Return each content packed; those with the same records, as in a round, share one object."""
    packed: dict[tuple[tuple[str, int], ...], RecordDict] = {}
    found = []
    for content in contents:
        records = tuple((name, id(record)) for name, record in content.items())
        if records not in packed:
            packed[records] = pack(content)
        found.append(packed[records])
    return found


def packed_size(content: RecordDict) -> int:
    """Return what a packed content takes of memory once it is unpacked, in bytes."""
    large = records_of(content, ArrayRecord)
    large.pop(RECORD, None)
    arrays = sum(len(array.data) for record in large.values() for array in record.values())
    return content_size(_bytes(content)) + arrays


def unpack(message: Message, most: float = math.inf) -> bool:
    """Unpack a message's records if they are packed; return whether they were.

    Args:
        message: The message.
        most: The most bytes that the packed records may take, as `packed_size` counts them.

    Raises:
        ValueError: They cannot be read, or take more.
    """
    if not message.has_content() or RECORD not in message.content:
        return False
    data = _bytes(message.content)
    arrays = {name: record for name, record in message.content.items() if name != RECORD}
    message.content = RecordDict({**arrays, **content_from_bytes(data, most)})
    return True


def _bytes(content: RecordDict) -> bytes:
    record = content[RECORD]
    data = record.get(ENTRY) if isinstance(record, ConfigRecord | ArrayRecord) else None
    if isinstance(data, Array):
        data = data.data
    if not isinstance(data, bytes):
        raise ValueError(f"no bytes {ENTRY!r} in the record {RECORD!r}")
    return data
