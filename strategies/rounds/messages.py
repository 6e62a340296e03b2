"""What server and clients exchange, as values, and the contents of the server's messages.

The server sends a `Broadcast`, which the client gets as `Received`; the client returns an `Update`,
which the server gets as a `Reply`. Only `write_contents` and `reply_validation` on the server and
`client_messages` on the client turn them into Flower's records and back; docs/protocol.md has the
records.
"""

import zlib
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from .flower_arrays import array_record, to_record
from .model import Arrays, Model, Vector
from .reply_errors import ReplyError

# The records of a message: of arrays, of metrics, of settings; and names of metrics.
ARRAYS, METRICS, CONFIG = "arrays", "metrics", "config"
NUM_EXAMPLES, ACCURACY = "num-examples", "accuracy"
# What clients add to every gradient of local SGD, by array; only some strategies set it.
GRADIENT_OFFSET = "gradient-offset"
SERVER_ROUND = "server-round"
# The strategies' own record: the server's entries for the client's end, and a reply's payload. Its
# name begins the names of their further records, which handlers never see.
OWN, PAYLOAD = "fedavg-strategies", "payload"
# Entries of the own record: the names of the buffers, and of the records of arrays and of settings
# unless those are "arrays" and "config".
BUFFER_NAMES, ARRAYS_KEY, CONFIG_KEY = "buffers", "arrays-key", "config-key"
# Entries of compressed strategies: the head, the updates that the client missed, and, with the
# model, the text of what compresses them.
HEAD, UPDATES, CODEC = "head", "updates", "codec"
# The record of the last global update, from which clients without memory send their difference.
LAST_UPDATE = "last-update"
# The entry of secure sums: a stage's message.
SECURE = "secure-sum"
# The entry of a node's config that names the key by which the device signs its part of these.
SIGNING_KEY = "signing-key"
# Further records: of arrays that are sent uncompressed beside compressed arrays; of the names and
# places of arrays that stay on the client, and of their initial values; and of a reply that names
# an array which the client seems to keep.
BUFFERS = f"{OWN}.buffers"
PLACES, VALUES = f"{OWN}.local-arrays", f"{OWN}.local-values"
NOTE = f"{OWN}.note"
# The setting by which Flower's wrappers tell clients to clip the models that they send.
CLIPPING_NORM = "clipping_norm"
# What compressors draw for: a client's update, and the server's.
UPLINK, DOWNLINK = "uplink", "downlink"

Record = TypeVar("Record", ArrayRecord, MetricRecord)
Entry = int | bytes | str


@dataclass(frozen=True)
class Broadcast:
    """What the server sends a client, besides the settings that all clients get.

    Attributes:
        entries: Entries of the strategies' own record, for the strategy's client function.
        full: Whether the model is sent, or only its buffers.
        vectors: Further vectors of the model's layout, by the name of their record.
    """

    entries: Mapping[str, Entry] = field(default_factory=dict)
    full: bool = True
    vectors: Mapping[str, Vector] = field(default_factory=dict)


@dataclass(frozen=True)
class Received:
    """What a client has received.

    Attributes:
        number: The number of the round, from 1.
        trains: Whether the client should train; else evaluate.
        settings: The settings of the local work, as the server's app gave them.
        entries: The server's `Broadcast.entries`.
        model: The model; None if only its buffers were sent.
        buffers: The buffers, by name, if they were sent without the model.
        buffer_names: The names of the model's buffers.
        vectors: `Broadcast.vectors`.
        others: The message's other records, which the handler gets beside the model.
        seed: The run's seed: the setting "seed", 0 without one.
        client: The client's partition; the id of its node if it has none.
        node_config: The node's own settings.
    """

    number: int
    trains: bool
    settings: ConfigRecord
    entries: dict[str, Any]
    model: Model | None
    buffers: Arrays
    buffer_names: tuple[str, ...]
    vectors: Mapping[str, Vector]
    others: RecordDict
    seed: object
    client: object
    node_config: Mapping[str, Any] = field(default_factory=dict)

    def take(self, name: str) -> bytes:
        """Return an entry of bytes; ValueError if there is none."""
        data = self.entries.get(name)
        if not isinstance(data, bytes):
            raise ValueError(f"no bytes {name!r} in the ConfigRecord {OWN!r}")
        return data

    def random_stream(self, purpose: str) -> np.random.Generator:
        """Return the generator for what this client draws for a purpose in this round."""
        return random_stream(self.seed, purpose, self.client, self.number)


@dataclass(frozen=True)
class Update:
    """What a strategy's client function returns.

    Attributes:
        model: The model to send, at first the trained model; None to send none.
        buffers: The buffers, which are always sent.
        num_examples: n_k, if the client's work reported it.
        payload: Bytes that are sent in place of the model, or beside it.
        vectors: Further vectors of the model's layout, by the name of their record.
        note: The name of an array that the client seems to keep, which the server warns of.
        alone: Whether nothing of the handler's reply is sent beside it, such as metrics.
    """

    model: Model | None = None
    buffers: Arrays = field(default_factory=dict)
    num_examples: float = 0.0
    payload: bytes | None = None
    vectors: Mapping[str, Vector] = field(default_factory=dict)
    note: str = ""
    alone: bool = False


def refuse_clipping(settings: Mapping[str, Any]) -> None:
    """Raise a ValueError if a wrapper of Flower's tells clients to clip the models they send."""
    if CLIPPING_NORM in settings:
        fix = "give a strategy whose clients send models, as FedAvg's do"
        raise ValueError(f"{CLIPPING_NORM!r}: what these clients send cannot be clipped; {fix}")


def named_or_only(content: RecordDict, name: str, kind: type[Record]) -> tuple[str, Record]:
    """Return (name, record) of a reply's record of that name, else of the only record of its kind.

    Raises:
        ReplyError: There is none, or there are several of other names.
    """
    found = {key: record for key, record in content.items() if isinstance(record, kind)}
    if name not in found and len(found) != 1:
        raise ReplyError(f"no {kind.__name__} {name!r}")
    key = name if name in found else next(iter(found))
    return key, found[key]


def random_stream(
    seed: object, purpose: str, client: object, server_round: int
) -> np.random.Generator:
    """Return the generator for a purpose in a round, of a client or of all clients.

    Args:
        seed: The run's. The CRC-32 of its text stands for a value that is no integer from 0.
        purpose: `UPLINK` for a client's update, `DOWNLINK` for the server's.
        client: The client's partition, likewise; 0 for the server.
        server_round: From 1: `numpy.random.SeedSequence` ignores trailing zeros.
    """
    own, of_client = (
        value if isinstance(value, int) and value >= 0 else zlib.crc32(str(value).encode())
        for value in (seed, client)
    )
    return np.random.default_rng([own, zlib.crc32(purpose.encode()), of_client, server_round])


def write_contents(
    model: Model,
    settings: ConfigRecord,
    keys: tuple[str, str],
    broadcasts: Iterable[Broadcast],
    has_end: bool,
    further: Iterable[Mapping[str, ArrayRecord | ConfigRecord]],
) -> Iterator[RecordDict]:
    """Yield the whole content of a message for each broadcast.

    Contents of the same broadcast share their records; a client mod may replace them.

    Args:
        model: The global model.
        settings: The settings sent to all clients, as they are.
        keys: The names of the record of arrays and of that of settings.
        broadcasts: What is sent to the clients besides.
        has_end: Whether clients have an end that reads the strategies' own record.
        further: Further records for each client.
    """
    arrays, config = keys
    common: dict[str, Any] = {}
    if has_end and keys != (ARRAYS, CONFIG):
        common = {ARRAYS_KEY: arrays, CONFIG_KEY: config}
    if has_end and model.buffers:
        common[BUFFER_NAMES] = list(model.buffers)
    buffers = array_record({name: model.record[name] for name in model.buffers})
    written: dict[Hashable, RecordDict] = {}
    vectors: dict[int, tuple[Vector, ArrayRecord]] = {}
    for broadcast, records in zip(broadcasts, further, strict=True):
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
        yield RecordDict({**written[key], **records})
