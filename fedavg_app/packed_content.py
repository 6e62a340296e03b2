"""A message's content as one object, for grids over the network.

Flower sends every record, array and chunk of an array as a separate object, each with a signed
request, of which a SuperLink serves some 50 a second. Here the whole content is the only entry of
one record; the client's outermost step, and the server's grid, put the records back before anything
else sees them.
"""

from collections.abc import Iterable

from flwr.app import ConfigRecord, Message, RecordDict

from fedavg_app.flower_internals import content_from_bytes, content_to_bytes

RECORD, ENTRY = "packed", "content"
# Larger contents go as Flower sends them, in chunks of 5 MiB.
MAX_BYTES = 32 * 2**20


def pack(content: RecordDict) -> RecordDict:
    """Return the content as one record, or unchanged if it is too large."""
    arrays = content.array_records.values()
    if sum(len(array.data) for record in arrays for array in record.values()) > MAX_BYTES:
        return content
    return RecordDict({RECORD: ConfigRecord({ENTRY: content_to_bytes(content)})})


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


def unpack(message: Message) -> bool:
    """Unpack a message's records if they are packed; return whether they were.

    Raises:
        ValueError: They cannot be read.
    """
    if not message.has_content() or list(message.content) != [RECORD]:
        return False
    record = message.content[RECORD]
    data = record.get(ENTRY) if isinstance(record, ConfigRecord) else None
    if not isinstance(data, bytes):
        raise ValueError(f"no bytes {ENTRY!r} in the record {RECORD!r}")
    message.content = content_from_bytes(data)
    return True
