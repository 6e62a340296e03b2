"""A device's connection: its rates and latency, and the time of a message over it."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

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


def duration(seconds: float) -> str:
    """Return a time in the largest unit that gives two digits, such as "12 min" or "5.3 min"."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 10 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.1f} s"
