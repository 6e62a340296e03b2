"""The clocks of a comparison: the wall's, and that of a link or of the runs' own links."""

from collections.abc import Sequence
from functools import partial

from pydantic import ValidationError

from fedavg_app.config import config_error
from fedavg_app.errors import ConfigError
from fedavg_app.links import LINKS, Link, LinkName, link_times
from fedavg_app.results.comparison import Clock, wall_clock
from fedavg_app.results.finished_run import FinishedRun
from fedavg_app.results.history import virtual_times


def clocks_of(runs: Sequence[FinishedRun], link: Link | None) -> dict[str, Clock]:
    """Return the clocks that all runs have, by the name of their column; the wall's is first."""
    clocks: dict[str, Clock] = {"seconds": wall_clock}
    if link is not None:
        clocks["seconds_link"] = partial(link_times, link=link)
    elif all(virtual_times(run.history)[-1] for run in runs):
        clocks["seconds_virtual"] = virtual_times
    return clocks


def link_of(name: LinkName | None, **options: float | None) -> Link | None:
    """Return the link that the options describe; None if they name none.

    Raises:
        ConfigError: The options conflict, or a value cannot be used.
    """
    given = {key: value for key, value in options.items() if value is not None}
    if name is None and not given:
        return None
    if name is None and not given.keys() >= {"up", "down"}:
        fix = "give both in Mbit/s, or the name of a --link"
        raise ConfigError("up, down", (options["up"], options["down"]), fix)
    try:
        return Link(**((LINKS[name].model_dump() if name else {}) | given))
    except ValidationError as error:
        raise config_error(error, Link) from None
