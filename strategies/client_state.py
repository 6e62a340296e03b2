"""What a client of a compressed strategy keeps, and how its model is brought up to date.

Its `Context.state` holds its copy of the model, the copy's version, and the memory of the error
feedback with the bytes sent last. It may be lost at any time, and is changed last in a round.
"""

from dataclasses import dataclass

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, RecordDict

from strategies.aggregation import without
from strategies.compressed_messages import TrainMessage
from strategies.compression.compressor import Compressor
from strategies.compression.error_feedback import Memory
from strategies.compression.sync_protocol import Version
from strategies.compression.vector_layout import Layout
from strategies.flower_arrays import (
    array_record,
    find_record,
    from_record,
    get_record,
    raw_array,
    to_record,
)

# Records of the state. The last has the memory's vectors, and the bytes sent last.
MODEL, VERSION, FEEDBACK = "synced-model", "synced-version", "error-feedback"
PENDING = "pending"

# The version built last, with its model. It is the same model for every client that reaches it, so
# clients that share a process build it once, and the next one from there.
LastBuilt = dict[Version, ArrayRecord]


@dataclass(frozen=True)
class ClientState:
    """What a client knows of its earlier rounds; the defaults are those of a new client.

    Attributes:
        model: Its copy of the global model; None for none, and where it is always sent all of it.
        version: That model's version.
        last_round: The round that it last answered with an update, 0 for none.
        memory_since: The round whose update was the first made with its memory.
        memory: The vectors of the error feedback, as they are until the update that was sent last
            is accepted; None for none.
        pending: That update's bytes.
    """

    model: ArrayRecord | None = None
    version: Version | None = None
    last_round: int = 0
    memory_since: int = 0
    memory: Memory | None = None
    pending: bytes = b""

    @classmethod
    def read(cls, state: RecordDict) -> "ClientState":
        """Return what the records of a client's state hold."""
        progress = find_record(state, VERSION, ConfigRecord)
        if progress is None:
            return cls()
        keys = ("number", "fingerprint", "round", "memory-since")
        number, fingerprint, last_round, since = (int(str(progress[key])) for key in keys)
        version, model = Version(number, fingerprint), find_record(state, MODEL, ArrayRecord)
        if FEEDBACK not in state:
            return cls(model, version, last_round, since)
        vectors = dict(get_record(state, FEEDBACK, ArrayRecord))
        pending = vectors.pop(PENDING).data
        memory = {name: np.frombuffer(one.data, np.float32) for name, one in vectors.items()}
        return cls(model, version, last_round, since, memory, pending)

    def write(self, state: RecordDict) -> None:
        """Put this into the records of a client's state."""
        assert self.version is not None
        if self.model is not None:
            state[MODEL] = self.model
        state[VERSION] = ConfigRecord(
            {
                "number": self.version.number,
                "fingerprint": self.version.fingerprint,
                "round": self.last_round,
                "memory-since": self.memory_since,
            }
        )
        if self.memory:
            kept = {name: raw_array(vector.tobytes()) for name, vector in self.memory.items()}
            state[FEEDBACK] = array_record({**kept, PENDING: raw_array(self.pending)})


def synced_model(
    received: TrainMessage, state: ClientState, downlink: Compressor, last_built: LastBuilt
) -> ArrayRecord | None:
    """Return the global model; None if the updates sent do not lead to it from this client's."""
    if received.model is not None:
        return received.model
    version = received.head.version
    if state.model is None or state.version is None:
        return None
    if state.version == version:
        model: ArrayRecord | None = state.model
    elif version in last_built:
        model = last_built[version]
    else:
        # A process may have had clients of another run, whose models have other arrays.
        own = _kinds(state.model)
        starts = [one for one in last_built.items() if _kinds(one[1]) == own]
        starts.append((state.version, state.model))
        starts.sort(key=lambda start: -start[0].number)  # the fewest updates first
        built = (_build(received, have.number, model, downlink) for have, model in starts)
        model = next((one for one in built if one is not None), None)
        if model is not None:
            last_built.clear()
            last_built[version] = model
    if model is None or received.sent_buffers is None:
        return model
    return array_record({**model, **received.sent_buffers})


def _kinds(arrays: ArrayRecord) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {name: (array.dtype, tuple(array.shape)) for name, array in arrays.items()}


def _build(
    received: TrainMessage, have: int, arrays: ArrayRecord, downlink: Compressor
) -> ArrayRecord | None:
    """Return the model that the updates turn ``arrays`` into; None where it is another version."""
    model = from_record(arrays)
    trained = without(model, received.buffers)
    layout = Layout.of(trained)
    vector = layout.flatten(trained)
    for update in received.updates:
        if update.number > have:
            vector += downlink.decode(update.data, layout).to_dense()
            have = update.number
    if Version.of(have, vector) != received.head.version:
        return None
    return to_record({**model, **layout.unflatten(vector)})
