"""The links of a simulation's clients: classes of devices, and which client has which."""

import math
import tomllib
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedavg_app.config import kebab
from fedavg_app.errors import ConfigError
from fedavg_app.links.link import LINKS, Link
from tasks.training.random_streams import numpy_generator


class DeviceClass(Link):
    """A class of devices with one kind of link.

    Attributes:
        name: Human-readable.
        share: Of the clients, relative to the other classes'.
        loss: The share of rounds in which a client's reply is lost.
        computing: A device's computing time as a multiple of the reference core's.
        spread: The standard deviation of the logarithms of its devices' rates and of their
            computing times; the medians are the values given here. 0 makes all equal.
    """

    name: str = ""
    share: float = Field(1.0, gt=0, allow_inf_nan=False)
    loss: float = Field(0.0, ge=0, lt=1)
    computing: float = Field(1.0, ge=0, allow_inf_nan=False)
    spread: float = Field(0.0, ge=0, le=3)


class Fleet(BaseModel):
    """The classes that clients' devices are drawn from, and the server's own link.

    Attributes:
        classes: The classes; "class" in a file.
        server_up: Mbit/s from the server, which a round's participants share; infinite if not
            given.
        server_down: Mbit/s to the server, likewise.
    """

    model_config = ConfigDict(
        alias_generator=kebab, extra="forbid", frozen=True, populate_by_name=True
    )

    classes: list[DeviceClass] = Field(min_length=1, alias="class")
    server_up: float = Field(math.inf, gt=0)
    server_down: float = Field(math.inf, gt=0)


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

    def __getitem__(self, client: int) -> DeviceClass:
        kind: DeviceClass = self._classes[self._drawn[client]]
        rate, computing = np.exp(kind.spread * self._normal[client]).tolist()
        own = {
            "up": kind.up * rate,
            "down": kind.down * rate,
            "computing": kind.computing * computing,
        }
        return kind.model_copy(update=own)
