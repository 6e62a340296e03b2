"""What a strategy keeps on the client from round to round: one value in `Context.state`.

It may be lost at any time, and the server may never see the reply that was sent with it. So the
changes of a reply are pending until the server names that reply's round as settled.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from flwr.app import ArrayRecord, ConfigRecord, RecordDict

from ..compression.sync_protocol import Version
from .flower_arrays import find_record, from_record, to_record
from .messages import Received
from .model import Vector

Vectors = Mapping[str, Vector]

# Records of the state.
MEMORY, VECTORS, MODEL = "strategy-memory", "strategy-vectors", "strategy-model"
STAGES = "strategy-stages"


@dataclass(frozen=True)
class ClientMemory:
    """A client's state from its earlier rounds; the defaults are those of a new client.

    Attributes:
        last_round: The last round answered with an update, 0 for none.
        vectors: By name, such as a residual; their values if that answer did not count.
        pending: What that answer changes in the vectors once the server has settled it.
        model: The client's copy of the global model; None without a copy, or if the whole model is
            always sent.
        version: That model's version.
        codec: The codec's text, if the server has sent it.
        stages: What a method of several exchanges keeps between those of a round, by name.
    """

    last_round: int = 0
    vectors: Vectors = field(default_factory=dict)
    pending: bytes = b""
    model: ArrayRecord | None = None
    version: Version | None = None
    codec: str = ""
    stages: ConfigRecord = field(default_factory=ConfigRecord)

    @classmethod
    def read(cls, state: RecordDict) -> "ClientMemory":
        """Return the memory in the records of a client's state."""
        entries = find_record(state, MEMORY, ConfigRecord)
        stages = find_record(state, STAGES, ConfigRecord) or ConfigRecord()
        if entries is None:
            return cls(stages=stages)
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
            stages,
        )

    def write(self, state: RecordDict) -> None:
        """Write this memory to the records of a client's state, replacing the old memory."""
        version = self.version or Version(-1, 0)
        record = ConfigRecord(
            {"round": self.last_round, "number": version.number, "fingerprint": version.fingerprint}
        )
        # Flower cannot count the bytes of an empty entry.
        further = ("codec", self.codec), ("pending", self.pending)
        record.update({name: value for name, value in further if value})
        state[MEMORY] = record
        for name in (VECTORS, MODEL, STAGES):
            state.pop(name, None)
        if self.stages:
            state[STAGES] = self.stages
        if self.vectors:
            state[VECTORS] = to_record(self.vectors)
        if self.model is not None:
            state[MODEL] = self.model

    def check_round(self, received: Received) -> None:
        """Check that a training message is of a later round than the last one answered.

        Raises:
            ValueError: It is not.
        """
        if received.trains and received.number <= self.last_round:
            last = self.last_round
            raise ValueError(f"a message of round {received.number}, after one of round {last}")

    def settled(
        self,
        settled_round: int,
        take: Callable[[Vectors, bytes], Vectors],
        *,
        refused: bool = False,
    ) -> Vectors:
        """Return the vectors, given which of the client's replies the server settled last.

        If that is the last reply, it counts, or it was refused with all that was kept by then.
        Otherwise the last reply was lost, late or rejected, and the vectors are those before it. If
        the server has settled a later reply than this memory knows of, the memory is an old copy:
        its content may have been counted, so it is dropped.

        Args:
            settled_round: The last round of the client that the server settled, 0 for none.
            take: Returns the vectors after the pending answer, from the vectors before it and its
                bytes.
            refused: Whether the server has refused that round's reply for good.
        """
        if not self.vectors or settled_round > self.last_round:
            return {}
        if settled_round < self.last_round:
            return self.vectors
        return {} if refused else take(self.vectors, self.pending)
