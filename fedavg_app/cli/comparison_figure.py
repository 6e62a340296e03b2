"""A figure of several trainings: their objective by round, by bytes and by time."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from pandas import DataFrame, concat

from fedavg_app.budget import BYTES, SECONDS
from fedavg_app.callbacks.figures import COLORS, GREY, save_figure, use_log_scale
from fedavg_app.cli.comparison import LINK, VIRTUAL, Comparison, largest_unit
from fedavg_app.cli.options import Panel
from fedavg_app.results.finished_run import FINISHED

STYLES = ("-", "--", "-.", ":")
# On a screen: the width in inches, and the height of the panels.
WIDTH, HEIGHT = 12.0, 3.8
# The settings of a figure for print, whose width is given.
PRINT: dict[Any, Any] = {
    "font.size": 8, "lines.linewidth": 1.1, "axes.linewidth": 0.6, "lines.markersize": 4,
}  # fmt: skip
SCREEN_DPI, PRINT_DPI = 150, 300
THIN = 0.5  # the width of a run's line to that of its mean
LEAST_PANEL = 1.6  # inches
LEGEND_HANDLE = 6  # characters
# By panel, the columns of a course that it adds up, and the label of its axis.
PANELS: Mapping[Panel, tuple[Sequence[str], str]] = {
    Panel.ROUND: (["round"], "round"),
    Panel.UP: (["bytes_up"], "{} up, all clients"),
    Panel.DOWN: (["bytes_down"], "{} down, all clients"),
    Panel.BOTH: (["bytes_up", "bytes_down"], "{} up and down"),
    Panel.WALL: (["seconds"], "{}, wall clock"),
}
CLOCKS = {LINK: "{} on the link", VIRTUAL: "{} of virtual time"}


def draw_comparison(
    compared: Comparison, panels: Sequence[Panel], path: Path, width: float | None = None
) -> None:
    """Write a figure of the lines; a method has the same colour in all figures of a sweep.

    Every run is drawn to its own end, which is marked if it did not finish: after its last test at
    the last value, dotted. For several runs these lines are thin, and a thick one is their mean, in
    a band from the smallest to the largest value, at the rounds in which all were tested.

    Args:
        compared: The runs.
        panels: What the objective is drawn by.
        path: The file, .png, .pdf or .svg.
        width: In inches, with text of 8 points; None for a screen.

    Raises:
        OSError: It cannot be written.
    """
    with rc_context(PRINT if width else None):
        figure = _figure(compared, panels, width)
        save_figure(figure, path, PRINT_DPI if width else SCREEN_DPI)


def _figure(compared: Comparison, panels: Sequence[Panel], width: float | None) -> Figure:
    lines = [own for _, own in compared.numbers.groupby("line", sort=False)]
    in_a_row = _in_a_row(len(panels), width)
    names, columns, rows = _legend([own["run"].iloc[0] for own in lines], width)
    each = (width or WIDTH) / in_a_row
    height = (0.35 * each + 0.9 if width else HEIGHT) * len(panels) / in_a_row
    height += (0.16 if width else 0.2) * rows
    figure = Figure(figsize=(width or WIDTH, height), layout="constrained")
    axes = figure.subplots(len(panels) // in_a_row, in_a_row, sharey=True, squeeze=False)
    looks: list[dict[str, Any]] = [
        {"color": COLORS[color % len(COLORS)], "linestyle": STYLES[color % len(STYLES)]}
        for color in (own["color"].iloc[0] for own in lines)
    ]
    finished = [own["status"].iloc[0] == FINISHED for own in lines]
    for panel, shown in zip(panels, axes.flat, strict=True):
        keys, label = PANELS.get(panel, ([compared.clock], CLOCKS.get(compared.clock, "")))
        largest = max(own[keys].iloc[-1].sum() for own in compared.courses)
        unit, scale = _unit(keys[0], largest)
        curves = [
            DataFrame({"place": own[keys].sum(axis="columns") / scale, "value": own["value"]})
            for own in compared.courses
        ]
        shown.set_xlabel(label.format(unit))
        shown.grid(alpha=0.3)
        for own, look, is_finished in zip(lines, looks, finished, strict=True):
            of_line = [curves[at] for at in own.index]
            # Central training sends nothing.
            if any(curve.dropna()["place"].any() for curve in of_line):
                _draw_line(shown, of_line, look)
            if not is_finished:
                _draw_ends(shown, of_line, look["color"])
        if keys[0].startswith("bytes") and shown.lines:
            use_log_scale(shown, each)
        if compared.target is not None:
            shown.axhline(compared.target, color=GREY, linestyle="--", linewidth=0.8)
    on_clients = any(run.on_clients for run in compared.runs)
    for first in axes[:, 0]:
        first.set_ylabel(f"{'' if on_clients else 'test '}{compared.objective.name}")
    legend = [
        Line2D([], [], label=name, marker=None if is_finished else "x", **look)
        for name, look, is_finished in zip(names, looks, finished, strict=True)
    ]
    figure.legend(handles=legend, loc="outside lower center", ncols=columns)
    return figure


def _unit(key: str, largest: float) -> tuple[str, float]:
    """Return the unit of an axis and its size: the largest in which its end is 2 or more."""
    if key == "round":
        return "", 1.0
    return largest_unit(BYTES if key.startswith("bytes") else SECONDS, largest, least=2)


def _draw_line(axes: Axes, curves: Sequence[DataFrame], look: Mapping[str, Any]) -> None:
    """Draw the runs of a line."""
    tested = [own.dropna() for own in curves]
    drawn = [axes.plot(own["place"], own["value"], **look)[0] for own in tested]
    if len(drawn) == 1:
        return
    for thin in drawn:
        thin.set(alpha=0.6, linewidth=THIN * thin.get_linewidth())
    shared = concat(tested, axis="columns", join="inner")  # the rounds in which all were tested
    places, values = shared["place"].mean(axis="columns"), shared["value"]
    axes.plot(places, values.mean(axis="columns"), **look)
    least, most = values.min(axis="columns"), values.max(axis="columns")
    axes.fill_between(places, least, most, color=look["color"], alpha=0.2, linewidth=0)


def _draw_ends(axes: Axes, curves: Sequence[DataFrame], color: str) -> None:
    """Mark where runs ended, dotted from their last test on."""
    for own in curves:
        tested = own.dropna()
        if not tested.empty:
            (start, value), end = tested.iloc[-1], own["place"].iloc[-1]
            axes.plot([start, end], [value, value], color=color, linestyle=":")
            axes.plot([end], [value], color=color, marker="x")


def _in_a_row(panels: int, width: float | None) -> int:
    """Return how many panels are beside each other, in rows of as many."""
    room = panels if width is None else max(int(width / LEAST_PANEL), 1)
    return next(number for number in range(min(room, panels), 0, -1) if panels % number == 0)


def _legend(names: Sequence[str], width: float | None) -> tuple[list[str], int, int]:
    """Return the names in lines that fit the figure, and the legend's columns and lines."""
    room = int(15 * width) if width else 150  # characters
    names = [fill(name, room - LEGEND_HANDLE) for name in names]
    for columns in range(len(names), 0, -1):
        parts = [list(part) for part in np.array_split(names, columns)]  # as matplotlib does
        lines = [[line for name in part for line in name.split("\n")] for part in parts]
        if sum(max(map(len, part)) + LEGEND_HANDLE for part in lines) <= room:
            break
    return names, columns, max(map(len, lines))
