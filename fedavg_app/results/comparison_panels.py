"""The panels of a figure that compares runs: what it shows the objective by."""

from collections.abc import Mapping, Sequence
from enum import StrEnum

from fedavg_app.results.comparison import Clock
from fedavg_app.results.finished_run import FinishedRun

BYTES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "bytes"))
SECONDS = ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes"), (1.0, "seconds"))


class Panel(StrEnum):
    """What a figure shows the objective by; the clock of "link" may be that of the runs' links."""

    ROUND = "round"
    UP = "up"
    DOWN = "down"
    BOTH = "both"
    LINK = "link"
    WALL = "wall"


# By panel, the keys of a round's totals that it adds up, and the label of its axis.
TRAFFIC: Mapping[Panel, tuple[Sequence[str], str]] = {
    Panel.UP: (("bytes_up",), "{} up, all clients"),
    Panel.DOWN: (("bytes_down",), "{} down, all clients"),
    Panel.BOTH: (("bytes_up", "bytes_down"), "{} up and down"),
}


def default_panels(clocks: Mapping[str, Clock]) -> list[Panel]:
    """Return the panels of a figure: by round, by bytes up and by the last of the clocks."""
    return [Panel.ROUND, Panel.UP, Panel.LINK if len(clocks) > 1 else Panel.WALL]


def places(run: FinishedRun, panel: Panel, clocks: Mapping[str, Clock]) -> Sequence[float]:
    """Return where each round of a run is in a panel."""
    if panel in TRAFFIC:
        return [
            sum(metrics.total.get(key, 0) for key in TRAFFIC[panel][0]) for metrics in run.history
        ]
    if panel is Panel.ROUND:
        return [metrics.round for metrics in run.history]
    return list(clocks.values())[-1 if panel is Panel.LINK else 0](run.history)


def axis(panel: Panel, largest: float, clock: str) -> tuple[float, str]:
    """Return the size of a panel's unit, the largest in which its end is 2 or more, and a label."""
    if panel is Panel.ROUND:
        return 1.0, "round"
    units = BYTES if panel in TRAFFIC else SECONDS
    scale, unit = next(((size, name) for size, name in units if largest >= 2 * size), units[-1])
    if panel in TRAFFIC:
        return scale, TRAFFIC[panel][1].format(unit)
    if panel is Panel.WALL:
        return scale, f"{unit}, wall clock"
    return scale, f"{unit} {'of virtual time' if clock == 'seconds_virtual' else 'on the link'}"
