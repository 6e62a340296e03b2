"""The states of a worker's clients: in memory up to a limit, on disk beyond it."""

import pickle
from collections import OrderedDict
from pathlib import Path

from flwr.app import ArrayRecord, RecordDict


class ClientStates:
    """The states of one worker's clients, by partition.

    The states used last stay in memory. Once their arrays take more than ``memory_limit`` bytes,
    the others are written to files. (A record that several clients share, such as a version of the
    model, counts for each of them.)

    Args:
        memory_limit: In bytes.
        folder: Where the files go; its owner deletes it.
    """

    def __init__(self, memory_limit: int, folder: Path) -> None:
        self._limit, self._folder = memory_limit, folder
        self._in_memory: OrderedDict[int, RecordDict] = OrderedDict()
        self._bytes = 0
        self._on_disk: set[int] = set()

    def pop(self, partition: int) -> RecordDict:
        """Remove and return the client's state, an empty one where it has none."""
        if partition in self._on_disk:
            self._on_disk.remove(partition)
            file = self._file(partition)
            state: RecordDict = pickle.loads(file.read_bytes())  # noqa: S301 - written below
            file.unlink()
            return state
        if partition not in self._in_memory:
            return RecordDict()
        state = self._in_memory.pop(partition)
        self._bytes -= state_bytes(state)
        return state

    def pickled(self, partition: int) -> bytes | None:
        """Return the client's pickled state, None where it has none."""
        if partition in self._on_disk:
            return self._file(partition).read_bytes()
        state = self._in_memory.get(partition)
        return None if state is None else pickle.dumps(state)

    def put(self, partition: int, state: RecordDict) -> None:
        """Store the state of a client that has none here; an empty one is not stored.

        Raises:
            OSError: The disk is full.
        """
        if not state:
            return
        self._in_memory[partition] = state
        self._bytes += state_bytes(state)
        while self._bytes > self._limit and self._in_memory:
            oldest = next(iter(self._in_memory))
            self._file(oldest).write_bytes(pickle.dumps(self._in_memory[oldest]))
            self._bytes -= state_bytes(self._in_memory.pop(oldest))
            self._on_disk.add(oldest)

    def _file(self, partition: int) -> Path:
        return self._folder / f"{partition}.pickle"


def state_bytes(state: RecordDict) -> int:
    """Return the bytes of the arrays in a state."""
    return sum(
        len(array.data)
        for record in state.values()
        if isinstance(record, ArrayRecord)
        for array in record.values()
    )
