"""A figure of several trainings: their objective by round, by bytes and by time."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from fedavg_app.callbacks.plots import COLORS, GREY, save_figure, use_log_scale
from fedavg_app.results.comparison import Clock
from fedavg_app.results.finished_run import FINISHED, FinishedRun

STYLES = ("-", "--", "-.", ":")
# Characters of a legend's names that fit beside each other below the figure.
LEGEND_WIDTH = 150
MAX_LEGEND_COLUMNS = 4
BYTES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
SECONDS = ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes"))
# The columns of a run's points, and the units of those that have some.
Points = NDArray[np.float64]
ROUND, SENT, TIME, VALUE = range(4)
UNITS = ((SENT, BYTES), (TIME, SECONDS))


def draw_comparison(
    lines: Mapping[str, Sequence[FinishedRun]],
    target: float | None,
    time_name: str,
    clock: Clock,
    path: Path,
) -> None:
    """Write a figure with three panels, each with the lines of `group_runs`.

    Every run is drawn to its own end, which is marked where it did not finish. For several runs
    these lines are thin, and a thick one is their mean, in a band from the smallest to the largest
    value, at the rounds in which all of them were tested.

    Args:
        lines: The runs of each line, by its name.
        target: A value of the objective to draw as a line; None for none.
        time_name: The name of the clock: "seconds", "seconds_link" or "seconds_virtual".
        clock: Says how much time has passed.
        path: The file, .png, .pdf or .svg.

    Raises:
        OSError: It cannot be written.
    """
    curves = {name: [_points(run, clock) for run in runs] for name, runs in lines.items()}
    columns = _legend_columns(list(curves))
    height = 3.8 + 0.2 * -(-len(curves) // columns)
    figure = Figure(figsize=(12, height), layout="constrained")
    axes = figure.subplots(1, 3, sharey=True)
    # Of the last points, which have the most of everything.
    ends = np.concatenate([own[-1:] for line in curves.values() for own in line])
    sent, time = (_unit(float(ends[:, at].max(initial=0)), units) for at, units in UNITS)
    legend = []
    for (name, runs), color, style in zip(
        lines.items(), cycle(COLORS), cycle(STYLES), strict=False
    ):
        look: dict[str, Any] = {"color": color, "linestyle": style}
        mark = None if runs[0].status == FINISHED else "x"
        for panel, place, scale in zip(axes, range(3), (1.0, sent[0], time[0]), strict=True):
            _draw_line(panel, curves[name], place, scale, look)
            for own in curves[name]:
                last = own[-1:, place] / scale, own[-1:, VALUE]
                panel.plot(*last, color=color, marker=mark)
        legend.append(Line2D([], [], label=name, marker=mark, **look))
    on_clients = any(run.on_clients for runs in lines.values() for run in runs)
    name = next(iter(lines.values()))[0].objective.name
    axes[0].set(xlabel="round", ylabel=name if on_clients else f"test {name}")
    axes[1].set(xlabel=f"{sent[1] or 'bytes'} that all clients have sent")
    if ends[:, SENT].any():
        use_log_scale(axes[1])
    what = {"seconds_link": " on the link", "seconds_virtual": " of virtual time"}.get(
        time_name, ""
    )
    axes[2].set(xlabel=f"{time[1] or 'seconds'}{what}")
    for panel in axes:
        panel.grid(alpha=0.3)
        if target is not None:
            panel.axhline(target, color=GREY, linestyle="--", linewidth=1)
    figure.legend(handles=legend, loc="outside lower center", ncols=columns)
    save_figure(figure, path)


def _draw_line(
    panel: Axes, curves: Sequence[Points], place: int, scale: float, look: Mapping[str, Any]
) -> None:
    """Draw the runs of a line over one of the columns of their points."""
    if not any(own[:, place].any() for own in curves):
        return  # a central training sends nothing
    if len(curves) == 1:
        panel.plot(curves[0][:, place] / scale, curves[0][:, VALUE], **look)
        return
    for own in curves:
        panel.plot(own[:, place] / scale, own[:, VALUE], **look, linewidth=0.7, alpha=0.6)
    shared = sorted(set.intersection(*({*own[:, ROUND]} for own in curves)))
    together = np.stack([own[np.isin(own[:, ROUND], shared)] for own in curves])
    places, values = together[..., place].mean(axis=0) / scale, together[..., VALUE]
    panel.plot(places, values.mean(axis=0), **look)
    least, most = values.min(axis=0), values.max(axis=0)
    panel.fill_between(places, least, most, color=look["color"], alpha=0.2, linewidth=0)


def _points(run: FinishedRun, clock: Clock) -> Points:
    """Return a row for every round that was tested: round, bytes sent, seconds, objective."""
    rows = [
        (one.round, one.total.get("bytes_up", 0), passed, score)
        for one, passed in zip(run.history, clock(run.history), strict=True)
        if (score := one.score(run.objective, on_clients=run.on_clients)) is not None
    ]
    return np.array(rows, float).reshape(len(rows), 4)


def _unit(largest: float, units: Sequence[tuple[float, str]]) -> tuple[float, str]:
    """Return the size and the name of the largest unit in which the value is 2 or more."""
    return next(((size, name) for size, name in units if largest >= 2 * size), (1.0, ""))


def _legend_columns(names: Sequence[str]) -> int:
    longest = max(map(len, names), default=1) + 6  # the line beside it
    return min(len(names), MAX_LEGEND_COLUMNS, max(LEGEND_WIDTH // longest, 1))
