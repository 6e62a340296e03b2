"""The clients' links: devices' rates and latencies, fleets of them, and the time of messages."""

import math
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedavg_app.config import kebab
from fedavg_app.errors import ConfigError
from fedavg_app.results.history import RoundMetrics
from tasks.training.random_streams import numpy_generator

LinkName = Literal["fibre", "cable", "5g", "4g", "lte-m", "nb-iot"]


class Link(BaseModel):
    """A device's connection.

    Attributes:
        up: Mbit/s (10^6 bits a second) from the device.
        down: Mbit/s to the device.
        latency: Milliseconds from one end to the other and back.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    up: float = Field(gt=0)
    down: float = Field(gt=0)
    latency: float = Field(0.0, ge=0, allow_inf_nan=False)

    def seconds(self, bytes_up: float, bytes_down: float, rounds: float = 1) -> float:
        """Return the seconds that a participant's messages of so many rounds take.

        In each round it gets a message and answers it, a round trip each; computing is not counted.
        """
        transfer = transfer_seconds(bytes_up, self.up) + transfer_seconds(bytes_down, self.down)
        return transfer + 2e-3 * self.latency * rounds


def transfer_seconds(size: float, rate: float) -> float:
    """Return the seconds that so many bytes take at a rate in Mbit/s."""
    return 8e-6 * size / rate


# Fibre and cable: common tariffs. 5G: medians of Ookla's Q3 2021. 4G: US carriers in 2019, the
# middle of 14 to 21 and 2.4 to 7 Mbit/s, 58 to 70 ms (Opensignal). LTE-M and NB-IoT: peak rates of
# 3GPP's release 13, categories M1 (half duplex) and NB1.
LINKS: dict[LinkName, Link] = {
    "fibre": Link(up=500, down=500, latency=5),
    "cable": Link(up=20, down=200, latency=20),
    "5g": Link(up=21, down=166, latency=30),
    "4g": Link(up=5, down=18, latency=64),
    "lte-m": Link(up=0.375, down=0.3, latency=100),
    "nb-iot": Link(up=0.066, down=0.026, latency=1600),
}


def link_times(history: Sequence[RoundMetrics], link: Link) -> list[float]:
    """Return the seconds that all messages took by the end of every round, over the same link.

    The largest message of an exchange counts, and the largest reply: the server waits for the last
    one. Histories of earlier versions have the mean only.
    """
    times, total = [], 0.0
    for metrics in history:
        if metrics.participants:
            up = metrics.largest_up or metrics.bytes_up / metrics.participants
            down = metrics.largest_down or metrics.bytes_down / metrics.participants
            total += link.seconds(up, down, metrics.exchanges)
        times.append(total)
    return times


class DeviceClass(Link):
    """A class of devices with one kind of link.

    Attributes:
        name: Human-readable.
        share: Of the clients, relative to the other classes'.
        loss: The share of rounds in which a client's reply is lost.
        computing: A device's computing time as a multiple of the reference core's.
        online: The share of each day in which a device is on-line and may take part, in one piece
            that begins in the evening (`EVENING`).
        spread: The standard deviation of the logarithms of its devices' rates and of their
            computing times; the medians are the values given here. 0 makes all equal.
    """

    name: str = ""
    share: float = Field(1.0, gt=0, allow_inf_nan=False)
    loss: float = Field(0.0, ge=0, lt=1)
    computing: float = Field(1.0, ge=0, allow_inf_nan=False)
    online: float = Field(1.0, gt=0, le=1)
    spread: float = Field(0.0, ge=0, le=3)


class Fleet(BaseModel):
    """The classes that clients' devices are drawn from, and the server's own link.

    Attributes:
        classes: The classes; "class" in a file.
        server_up: Mbit/s from the server, which a round's participants share; infinite if not
            given.
        server_down: Mbit/s to the server, likewise.
        day: Virtual seconds of a day; a run begins at midnight.
    """

    model_config = ConfigDict(
        alias_generator=kebab, extra="forbid", frozen=True, populate_by_name=True
    )

    classes: list[DeviceClass] = Field(min_length=1, alias="class")
    server_up: float = Field(math.inf, gt=0)
    server_down: float = Field(math.inf, gt=0)
    day: float = Field(86_400.0, gt=0, allow_inf_nan=False)


# Phones that train at night and by day: FedScale's traces (arXiv 2105.11367) spread over more than
# an order of magnitude in rates and in computing. Shares, losses and spreads are ours; the rates
# are those of the links above, Wi-Fi behind cable.
PHONES = Fleet(
    classes=[
        DeviceClass(
            name="Wi-Fi", share=0.5, up=20, down=100, latency=25, loss=0.01, computing=4, spread=0.7
        ),
        DeviceClass(
            name="4G", share=0.35, up=5, down=18, latency=64, loss=0.03, computing=4, spread=0.7
        ),
        DeviceClass(
            name="5G", share=0.15, up=21, down=166, latency=30, loss=0.02, computing=2, spread=0.5
        ),
    ]
)
FLEETS = {
    **{
        str(name): Fleet(classes=[DeviceClass(name=name, **link.model_dump())])
        for name, link in LINKS.items()
    },
    "phones": PHONES,
}


def load_fleet(links: str) -> Fleet:
    """Return the fleet that the config key "links" names: one of `FLEETS`, or a TOML file.

    Raises:
        ConfigError: There is no such fleet, or the file does not describe one.
    """
    if links in FLEETS:
        return FLEETS[links]
    try:
        return Fleet.model_validate(tomllib.loads(Path(links).read_text(encoding="utf-8")))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise ConfigError("links", links, f"{key}: {first['msg']}") from error
    except (OSError, ValueError) as error:
        fix = f"give {', '.join(FLEETS)}, or a TOML file of [[class]] tables ({error})"
        raise ConfigError("links", links, fix) from error


# When devices come on-line, as a part of the day: at 22:00, with a standard deviation of 3 hours.
EVENING, EVENING_SPREAD = 22 / 24, 3 / 24


class Devices:
    """Every client's device, its class with rates and computing time of its own.

    They are a function of the seed and the number of clients, and made when they are asked for.

    Args:
        fleet: What they are drawn from.
        num_clients: K.
        seed: The run's.
    """

    def __init__(self, fleet: Fleet, num_clients: int, seed: int) -> None:
        generator, self._classes = numpy_generator(seed, "devices"), fleet.classes
        shares = np.array([kind.share for kind in fleet.classes])
        self._drawn = generator.choice(len(shares), size=num_clients, p=shares / shares.sum())
        self._normal = generator.standard_normal((num_clients, 2))
        evenings = numpy_generator(seed, "online")
        self._evenings = evenings.normal(EVENING, EVENING_SPREAD, num_clients)

    def are_online(self, clients: NDArray[np.int64], days: float) -> NDArray[np.bool_]:
        """Return which clients are on-line so many days after the run's first midnight."""
        begin = self._evenings[clients]
        shares = np.array([kind.online for kind in self._classes])[self._drawn[clients]]
        return (days - begin) % 1 < shares

    def __getitem__(self, client: int) -> DeviceClass:
        kind: DeviceClass = self._classes[self._drawn[client]]
        rate, computing = np.exp(kind.spread * self._normal[client]).tolist()
        rates = {
            "up": kind.up * rate,
            "down": kind.down * rate,
            "computing": kind.computing * computing,
        }
        return kind.model_copy(update=rates)
