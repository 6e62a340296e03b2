"""A figure of several trainings: their objective by round, by bytes and by time."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any, NamedTuple

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from fedavg_app.callbacks.figures import COLORS, GREY, save_figure, use_log_scale
from fedavg_app.results.comparison import Clock
from fedavg_app.results.comparison_lines import Line
from fedavg_app.results.comparison_panels import TRAFFIC, Panel, axis, places
from fedavg_app.results.finished_run import FINISHED, FinishedRun

STYLES = ("-", "--", "-.", ":")
# On a screen: the width in inches, and the height of the panels.
WIDTH, HEIGHT = 12.0, 3.8
# Of a figure for print, whose width is given.
PRINT: dict[Any, Any] = {
    "font.size": 8, "lines.linewidth": 1.1, "axes.linewidth": 0.6, "lines.markersize": 4,
}  # fmt: skip
SCREEN_DPI, PRINT_DPI = 150, 300
THIN = 0.5  # the width of a run's line to that of its mean
LEAST_PANEL = 1.6  # inches
LEGEND_HANDLE = 6  # characters
# A row for every round that was tested: the round, its place in every panel, the objective.
Points = NDArray[np.float64]
ROUND, VALUE = 0, -1


class Curve(NamedTuple):
    """A run's points, and its last round with its place in every panel."""

    points: Points
    end: NDArray[np.float64]


def draw_comparison(
    lines: Sequence[Line],
    target: float | None,
    panels: Sequence[Panel],
    clocks: Mapping[str, Clock],
    path: Path,
    width: float | None = None,
) -> None:
    """Write a figure of the lines.

    Every run is drawn to its own end, which is marked if it did not finish: after its last test at
    the last value, dotted. For several runs these lines are thin, and a thick one is their mean, in
    a band from the smallest to the largest value, at the rounds in which all were tested.

    Args:
        lines: What is drawn; a method has the same colour and dashes in all figures of a sweep.
        target: A value of the objective to draw as a line; None for none.
        panels: What the objective is drawn by.
        clocks: By the name of their column: the wall's, and maybe a link's or the runs' own links'.
        path: The file, .png, .pdf or .svg.
        width: In inches, with text of 8 points; None for a screen.

    Raises:
        OSError: It cannot be written.
    """
    with rc_context(PRINT if width else None):
        figure = _figure(lines, target, panels, clocks, width)
        save_figure(figure, path, PRINT_DPI if width else SCREEN_DPI)


def _figure(
    lines: Sequence[Line],
    target: float | None,
    panels: Sequence[Panel],
    clocks: Mapping[str, Clock],
    width: float | None,
) -> Figure:
    curves = [[_curve(run, panels, clocks) for run in line.runs] for line in lines]
    in_a_row = _in_a_row(len(panels), width)
    names, columns, rows = _legend([line.name for line in lines], width)
    each = (width or WIDTH) / in_a_row
    height = (0.35 * each + 0.9 if width else HEIGHT) * len(panels) / in_a_row
    height += (0.16 if width else 0.2) * rows
    figure = Figure(figsize=(width or WIDTH, height), layout="constrained")
    axes = figure.subplots(len(panels) // in_a_row, in_a_row, sharey=True, squeeze=False)
    ends = np.stack([own.end for line in curves for own in line])
    legend, scales = [], []
    for place, (panel, shown) in enumerate(zip(panels, axes.flat, strict=True), start=1):
        scale, label = axis(panel, float(ends[:, place].max()), list(clocks)[-1])
        shown.set_xlabel(label)
        shown.grid(alpha=0.3)
        scales.append(scale)
    for line, own, name in zip(lines, curves, names, strict=True):
        look: dict[str, Any] = {
            "color": COLORS[line.color % len(COLORS)],
            "linestyle": STYLES[line.color % len(STYLES)],
        }
        is_finished = line.status == FINISHED
        for place, (shown, scale) in enumerate(zip(axes.flat, scales, strict=True), start=1):
            if any(curve.points[:, place].any() for curve in own):  # central training sends nothing
                _draw_line(shown, [curve.points for curve in own], place, scale, look)
            if not is_finished:
                _draw_ends(shown, own, place, scale, look["color"])
        legend.append(Line2D([], [], label=name, marker=None if is_finished else "x", **look))
    on_clients = any(run.on_clients for line in lines for run in line.runs)
    objective = lines[0].runs[0].objective.name
    for first in axes[:, 0]:
        first.set_ylabel(objective if on_clients else f"test {objective}")
    for place, (panel, shown) in enumerate(zip(panels, axes.flat, strict=True), start=1):
        if panel in TRAFFIC and ends[:, place].any():
            use_log_scale(shown, each)
        if target is not None:
            shown.axhline(target, color=GREY, linestyle="--", linewidth=0.8)
    figure.legend(handles=legend, loc="outside lower center", ncols=columns)
    return figure


def _draw_line(
    axes: Axes, curves: Sequence[Points], place: int, scale: float, look: Mapping[str, Any]
) -> None:
    """Draw the runs of a line over one of the columns of their points."""
    if len(curves) == 1:
        axes.plot(curves[0][:, place] / scale, curves[0][:, VALUE], **look)
        return
    for own in curves:
        (thin,) = axes.plot(own[:, place] / scale, own[:, VALUE], **look, alpha=0.6)
        thin.set_linewidth(THIN * thin.get_linewidth())
    shared = sorted(set.intersection(*({*own[:, ROUND]} for own in curves)))
    together = np.stack([own[np.isin(own[:, ROUND], shared)] for own in curves])
    middle, values = together[..., place].mean(axis=0) / scale, together[..., VALUE]
    axes.plot(middle, values.mean(axis=0), **look)
    least, most = values.min(axis=0), values.max(axis=0)
    axes.fill_between(middle, least, most, color=look["color"], alpha=0.2, linewidth=0)


def _draw_ends(axes: Axes, curves: Sequence[Curve], place: int, scale: float, color: str) -> None:
    """Mark where runs ended, dotted from their last test on."""
    for own in curves:
        if own.points.size:
            ends = np.array([own.points[-1, place], own.end[place]]) / scale
            values = [own.points[-1, VALUE]] * 2
            axes.plot(ends, values, color=color, linestyle=":")
            axes.plot(ends[1:], values[1:], color=color, marker="x")


def _curve(run: FinishedRun, panels: Sequence[Panel], clocks: Mapping[str, Clock]) -> Curve:
    own = [places(run, panel, clocks) for panel in panels]
    rows = [
        (metrics.round, *(place[number] for place in own), score)
        for number, metrics in enumerate(run.history)
        if (score := metrics.score(run.objective, on_clients=run.on_clients)) is not None
    ]
    points = np.array(rows, float).reshape(len(rows), len(panels) + 2)
    return Curve(points, np.array([run.history[-1].round, *(place[-1] for place in own)], float))


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
