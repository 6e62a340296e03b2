"""The contents of the server's messages; `reply_validation` reads the replies."""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, RecordDict

from .flower_arrays import array_record, to_record
from .messages import BUFFERS, OWN, Broadcast
from .model import Model, Vector


def write_contents(
    model: Model,
    settings: ConfigRecord,
    keys: tuple[str, str],
    broadcasts: Iterable[Broadcast],
    common: Mapping[str, Any],
) -> Iterator[RecordDict]:
    """Yield the content of a training message for each broadcast.

    Contents of the same broadcast share their records; a client mod may replace them.

    Args:
        model: The global model.
        settings: The settings sent to all clients, as they are.
        keys: The names of the record of arrays and of that of settings.
        broadcasts: What is sent to the clients besides.
        common: Entries of the strategies' own record for all clients.
    """
    arrays, config = keys
    buffers = array_record({name: model.record[name] for name in model.buffers})
    written: dict[Hashable, RecordDict] = {}
    vectors: dict[int, tuple[Vector, ArrayRecord]] = {}
    for broadcast in broadcasts:
        own = tuple((name, id(vector)) for name, vector in broadcast.vectors.items())
        key = (*broadcast.entries.items(), broadcast.full, own)
        if key not in written:
            content = RecordDict({arrays: model.record} if broadcast.full else {})
            content[config] = settings
            if entries := {**common, **broadcast.entries}:
                content[OWN] = ConfigRecord(entries)
            if buffers and not broadcast.full:
                content[BUFFERS] = buffers
            for name, vector in broadcast.vectors.items():
                if id(vector) not in vectors:
                    vectors[id(vector)] = vector, to_record(model.layout.unflatten(vector))
                content[f"{OWN}.{name}"] = vectors[id(vector)][1]
            written[key] = content
        yield RecordDict(dict(written[key]))
