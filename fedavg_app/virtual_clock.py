"""The virtual clock of a simulation: when each client's reply would arrive over its link.

A round's time, that of the last reply that it waits for, is in `fedavg_app.server.awaited_replies`.

Nothing is measured: a client's time follows from the bytes that it was sent and sends, from its
examples and from its device, so that the same seed gives the same times on any machine.
"""

import logging
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fedavg_app.config import RunConfig
from fedavg_app.errors import ConfigError, RunError
from fedavg_app.links import Devices, Fleet, load_fleet, transfer_seconds
from tasks.training.random_streams import numpy_generator

logger = logging.getLogger("fedavg_app.links")


@dataclass(frozen=True)
class ClientTime:
    """How long one client's part of a round takes, in virtual seconds.

    Attributes:
        download: Its message, with one round trip.
        computing: Its local work.
        upload: Its reply, with one round trip.
        lost: Whether the reply is lost on its way.
    """

    download: float
    computing: float
    upload: float
    lost: bool

    @property
    def total(self) -> float:
        """When the reply arrives, from the start of the round."""
        return self.download + self.computing + self.upload

    def arrives_within(self, seconds: float) -> bool:
        """Return whether the reply arrives, and in this time."""
        return not self.lost and self.total <= seconds

    def parts(self) -> dict[str, float]:
        """Return the three parts by name."""
        return {name: value for name, value in asdict(self).items() if name != "lost"}


class VirtualClock:
    """Says how long the clients of a run take.

    Args:
        fleet: What devices are drawn from.
        work: The seconds that each client's local work of a round takes on the reference core.
        seed: The run's.
    """

    def __init__(self, fleet: Fleet, work: Sequence[float], seed: int) -> None:
        self._fleet, self._work, self._seed = fleet, work, seed
        self._num_clients = len(work)
        self._devices = Devices(fleet, self._num_clients, seed)
        self._luck = lru_cache(maxsize=1)(self._draw_luck)

    def online(self, clients: Sequence[int], seconds: float) -> Sequence[int]:
        """Return those of the clients that are on-line so many virtual seconds after the start.

        Raises:
            RunError: None is.
        """
        if all(kind.online == 1 for kind in self._fleet.classes):
            return clients
        every = np.asarray(clients, np.int64)
        found = every[self._devices.are_online(every, seconds / self._fleet.day)]
        if not len(found):
            fix = "give more clients, or a larger online in the fleet of links"
            raise RunError(f"no client is on-line after {seconds:.0f} virtual seconds; {fix}")
        return [int(client) for client in found]

    def device(self, client: int) -> str:
        """Return the name of a client's class of devices."""
        return self._devices[client].name

    def client_time(
        self,
        server_round: int,
        client: int,
        participants: int,
        bytes_down: int,
        bytes_up: int,
    ) -> ClientTime:
        """Return the time of one client.

        Args:
            server_round: The round's number.
            client: The client's number.
            participants: How many clients the round has; they share the server's link.
            bytes_down: Bytes of its message.
            bytes_up: Bytes of its reply.
        """
        device = self._devices[client]
        down = min(device.down, self._fleet.server_up / participants)
        up = min(device.up, self._fleet.server_down / participants)
        round_trip = 1e-3 * device.latency
        return ClientTime(
            download=transfer_seconds(bytes_down, down) + round_trip,
            computing=self._work[client] * device.computing,
            upload=transfer_seconds(bytes_up, up) + round_trip,
            lost=bool(self._luck(server_round)[client] < device.loss),
        )

    def _draw_luck(self, server_round: int) -> NDArray[np.float64]:
        """Return a number in [0, 1) for every client in this round."""
        return numpy_generator(self._seed, "loss", server_round).random(self._num_clients)


def make_clock(
    config: RunConfig, sizes: Collection[int], seconds_per_example: float, *, whole_data: bool
) -> VirtualClock | None:
    """Return the clock of the config's "links"; None where it names none.

    Args:
        config: The run's settings.
        sizes: The number of training examples by client, n_k.
        seconds_per_example: Computing time of the reference core for one example, forward and
            backward.
        whole_data: Whether a client's work is one pass over its data, whatever the config's epochs
            and steps, as FedSGD's is.

    Raises:
        ConfigError: There are no such links, or they lose replies and the round has no timeout.
    """
    if not config.links:
        return None
    fleet = load_fleet(config.links)
    if not seconds_per_example:
        logger.warning("computing takes no virtual time: give seconds-per-example to count it")
    if not config.round_timeout and any(kind.loss for kind in fleet.classes):
        fix = "give the virtual seconds after which a round continues: these links lose replies"
        raise ConfigError("round-timeout", config.round_timeout, fix)

    examples = [size if whole_data else config.local_examples(size) for size in map(int, sizes)]
    return VirtualClock(fleet, [seconds_per_example * count for count in examples], config.seed)
