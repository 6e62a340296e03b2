"""What a run may spend, as text: bytes of its messages, or time on its links' virtual clock.

The units of both are here.
"""

import math
import re
from dataclasses import dataclass, replace
from typing import Self

from fedavg_app.errors import ConfigError

BYTES = {"B": 1e0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}
SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
FORM = re.compile(
    r"(?P<amount>\d*\.?\d+(?:e[+-]?\d+)?) ?(?P<unit>[A-Za-z]+)"
    r"(?: (?P<direction>up|down|both))?(?P<each> a client)?(?: on (?P<links>.+))?"
)
FIX = (
    f"give bytes ({', '.join(BYTES)}) up, down or both, as in '50 MB up' for all clients or "
    f"'1 MB up a client', or time ({', '.join(SECONDS)}) on the links, as in '2 h on 4g'"
)


@dataclass(frozen=True)
class Budget:
    """A limit on what a run spends by the end of its last round.

    Attributes:
        amount: How much, in its unit.
        unit: Of `BYTES`, powers of ten, or of `SECONDS`, which the virtual clock counts.
        direction: Of the bytes, "up", "down" or "both"; empty for time.
        each: Whether the bytes of all clients are divided by K.
    """

    amount: float
    unit: str
    direction: str = ""
    each: bool = False

    def __str__(self) -> str:
        return f"{self.amount:.12g} {self.kind}"

    @property
    def kind(self) -> str:
        """What an amount is of, such as "MB up a client"."""
        direction = f" {self.direction}" if self.direction else ""
        return f"{self.unit}{direction}{' a client' if self.each else ''}"

    def share(self, part: float) -> Self:
        """Return this part of it, to four digits."""
        return replace(self, amount=float(f"{part * self.amount:.4g}"))


def parse_budget(text: str) -> tuple[Budget, str]:
    """Return the budget of a text such as "50 MB up", and the links that it names, or "".

    Raises:
        ConfigError: It is not of this form, or it is of nothing.
    """
    found = FORM.fullmatch(" ".join(text.split()))
    if found is None:
        raise ConfigError("budget", text, FIX)
    amount, unit, direction = float(found["amount"]), found["unit"], found["direction"] or ""
    fits = unit in BYTES and not found["links"] if direction else unit in SECONDS
    if not fits or (found["each"] and not direction) or not 0 < amount < math.inf:
        raise ConfigError("budget", text, FIX)
    return Budget(amount, unit, direction, bool(found["each"])), found["links"] or ""


def duration(seconds: float) -> str:
    """Return a time in the largest unit that gives two digits, such as "12 min" or "5.3 min"."""
    for unit in ("d", "h", "min"):
        if seconds >= 10 * SECONDS[unit]:
            return f"{seconds / SECONDS[unit]:.0f} {unit}"
    return f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.1f} s"
