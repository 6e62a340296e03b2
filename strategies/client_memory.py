"""What a client's end of a strategy keeps from round to round: one value in `Context.state`.

It may be lost at any time, and the server may never see the reply that it was written with. So what
the client keeps of a reply is pending until the server names that reply's round as settled.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from flwr.app import ArrayRecord, ConfigRecord, RecordDict

from strategies.compression.sync_protocol import Version
from strategies.flower_arrays import find_record, from_record, to_record
from strategies.messages import Received
from strategies.model import Vector

Vectors = Mapping[str, Vector]

# Records of the state.
MEMORY, VECTORS, MODEL = "strategy-memory", "strategy-vectors", "strategy-model"


@dataclass(frozen=True)
class ClientMemory:
    """What a client knows of its earlier rounds; the defaults are those of a new client.

    Attributes:
        last_round: The round that it last answered with an update, 0 for none.
        vectors: By name, such as a residual, as they are if that answer did not count.
        pending: What that answer changes in them once the server has settled it.
        model: Its copy of the global model; None for none, and where it is always sent all of it.
        version: That model's version.
        codec: The text of what it compresses with, where the server has sent it.
        link: The link by which its pending answer was compressed.
    """

    last_round: int = 0
    vectors: Vectors = field(default_factory=dict)
    pending: bytes = b""
    model: ArrayRecord | None = None
    version: Version | None = None
    codec: str = ""
    link: str = ""

    @classmethod
    def read(cls, state: RecordDict) -> "ClientMemory":
        """Return what the records of a client's state hold."""
        entries = find_record(state, MEMORY, ConfigRecord)
        if entries is None:
            return cls()
        last_round, number, fingerprint = (
            int(str(entries[key])) for key in ("round", "number", "fingerprint")
        )
        pending = entries.get("pending", b"")
        assert isinstance(pending, bytes)
        return cls(
            last_round,
            from_record(find_record(state, VECTORS, ArrayRecord) or ArrayRecord()),
            pending,
            find_record(state, MODEL, ArrayRecord),
            Version(number, fingerprint) if number >= 0 else None,
            str(entries.get("codec", "")),
            str(entries.get("link", "")),
        )

    def write(self, state: RecordDict) -> None:
        """Put this into the records of a client's state, in the place of what was there."""
        version = self.version or Version(-1, 0)
        record = ConfigRecord(
            {"round": self.last_round, "number": version.number, "fingerprint": version.fingerprint}
        )
        # Flower cannot count the bytes of an empty entry.
        further = ("codec", self.codec), ("link", self.link), ("pending", self.pending)
        record.update({name: value for name, value in further if value})
        state[MEMORY] = record
        state.pop(VECTORS, None)
        state.pop(MODEL, None)
        if self.vectors:
            state[VECTORS] = to_record(self.vectors)
        if self.model is not None:
            state[MODEL] = self.model

    def check_round(self, received: Received) -> None:
        """Check that a training message is of a later round than the one answered last.

        Raises:
            ValueError: It is not.
        """
        if received.trains and received.number <= self.last_round:
            last = self.last_round
            raise ValueError(f"a message of round {received.number}, after one of round {last}")

    def settled(self, settled_round: int, take: Callable[[Vectors, bytes], Vectors]) -> Vectors:
        """Return the vectors now that the server says which reply of the client it settled last.

        The one sent last counts if its round is named; otherwise it was lost, late or rejected, and
        the vectors are as before it. Where the server has settled a later one than this memory
        knows of, the memory is an old copy: what it holds may have been counted, so it is dropped.

        Args:
            settled_round: The last round of the client that the server settled, 0 for none.
            take: Returns the vectors after the pending answer, from those before and its bytes.
        """
        if settled_round > self.last_round or not self.vectors:
            return {}
        return (
            take(self.vectors, self.pending) if settled_round == self.last_round else self.vectors
        )
