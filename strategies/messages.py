"""What travels between the two ends of a strategy, as values.

What the server sends a client is a `Broadcast` at one end and `Received` at the other; what a
client returns is an `Update` at one end and a `Reply` at the other. `server_messages` and
`client_messages` turn them into Flower's records and back, and nothing else does; docs/protocol.md
has the records.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from strategies.model import Arrays, Model, Vector
from strategies.random_streams import random_stream
from strategies.reply_validation import CONFIG, ReplyError

# The record of arrays that are sent as they are where the others are compressed, and the setting
# that lists their names.
BUFFERS = "buffers"
# The record of a reply's payload, and its entry.
UPDATE, PAYLOAD = "update", "payload"
SERVER_ROUND = "server-round"
# The setting that names a client's link, or the entry of its node's config.
LINK = "link"
# The setting that names the record of arrays, where that is not "arrays".
ARRAYS_KEY = "arrays-key"

Record = TypeVar("Record", ArrayRecord, MetricRecord)
Entry = int | bytes | str


@dataclass(frozen=True)
class Broadcast:
    """What the server sends one client, beside the settings that all clients get.

    Attributes:
        entries: Further entries of the message's settings, for the strategy's end on the client.
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
        trains: Whether the client is to train; else to evaluate.
        settings: The settings of the local work, and the server's `Broadcast.entries`.
        model: The model; None where only its buffers were sent.
        buffers: The buffers, by name, if they were sent without the model.
        buffer_names: The names of the model's buffers.
        vectors: `Broadcast.vectors`.
        seed: The run's seed.
        client: The client's partition; the id of its node where it has none.
        link: The name of its link; empty where neither the server nor its node's config has one.
    """

    number: int
    trains: bool
    settings: ConfigRecord
    model: Model | None
    buffers: Arrays
    buffer_names: tuple[str, ...]
    vectors: Mapping[str, Vector]
    seed: int
    client: int
    link: str = ""

    def take(self, name: str) -> bytes:
        """Remove and return an entry of bytes; ValueError if there is none."""
        data = self.settings.pop(name, None)
        if not isinstance(data, bytes):
            raise ValueError(f"no bytes {name!r} in the ConfigRecord {CONFIG!r}")
        return data

    def random_stream(self, purpose: str) -> np.random.Generator:
        """Return the generator of what this client draws for a purpose in this round."""
        return random_stream(self.seed, purpose, self.client, self.number)


@dataclass(frozen=True)
class Update:
    """What a client returns, as a strategy's end on the client makes it.

    Attributes:
        model: The model that is sent, at first the one that training left; None if it is not.
        buffers: The buffers, which are sent in any case.
        num_examples: n_k, where the client's work reported it.
        payload: Bytes that are sent in place of the model, or beside it.
        vectors: Further vectors of the model's layout, by the name of their record.
    """

    model: Model | None = None
    buffers: Arrays = field(default_factory=dict)
    num_examples: float = 0.0
    payload: bytes | None = None
    vectors: Mapping[str, Vector] = field(default_factory=dict)


def named_or_only(content: RecordDict, name: str, kind: type[Record]) -> tuple[str, Record]:
    """Return (name, record) of a reply's record of that name, else of the only one of its kind.

    Raises:
        ReplyError: There is none, or there are several of other names.
    """
    found = {key: one for key, one in content.items() if isinstance(one, kind)}
    if name not in found and len(found) != 1:
        raise ReplyError(f"no {kind.__name__} {name!r}")
    key = name if name in found else next(iter(found))
    return key, found[key]
