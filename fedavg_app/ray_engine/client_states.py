"""Where the clients' states are: each with a worker, or on its way to one; lost if that dies."""

from collections.abc import Iterable, Mapping

from fedavg_app.ray_engine.worker_handle import WorkerHandle


class ClientStates:
    """The workers that keep the clients' states.

    Attributes:
        owner: By client, the worker that keeps its state, or handles its message.
        parked: By client, the states that go to a worker with the client's next message, pickled.
    """

    def __init__(self) -> None:
        self.owner: dict[int, WorkerHandle] = {}
        self.parked: dict[int, bytes] = {}
        self._stateful: set[int] = set()  # the clients that have a state
        self._lost: set[int] = set()  # of these, since `take_lost`

    def restore(self, states: Mapping[int, bytes]) -> None:
        """Give clients these states, which they had when they were saved."""
        self.parked |= states
        self._stateful |= states.keys()

    def unpark(self, clients: Iterable[int]) -> dict[int, bytes]:
        """Remove and return the parked states of these clients."""
        return {client: self.parked.pop(client) for client in clients if client in self.parked}

    def note_handled(self, client: int, *, has_state: bool) -> None:
        """Record whether a client has a state after its message; without one any worker will do."""
        if has_state:
            self._stateful.add(client)
        else:
            self._stateful.discard(client)
            self.owner.pop(client, None)

    def lose(self, worker: WorkerHandle) -> list[int]:
        """Forget what a worker that has died kept; return the clients that lose their states."""
        owned = {client for client, owner in self.owner.items() if owner is worker}
        lost = owned & self._stateful
        self.owner = {client: self.owner[client] for client in self.owner.keys() - owned}
        self._stateful -= lost
        self._lost |= lost
        return sorted(lost)

    def take_lost(self) -> list[int]:
        """Return the clients that have lost their states since the last call, rising."""
        lost, self._lost = sorted(self._lost), set()
        return lost
