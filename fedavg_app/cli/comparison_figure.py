"""A figure of several trainings: their objective by round, by bytes and by time."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib import rc_context, rcParams
from matplotlib.axes import Axes
from matplotlib.cbook import is_math_text
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.mathtext import MathTextParser
from pandas import DataFrame, concat

from fedavg_app.budget import BYTES, SECONDS
from fedavg_app.callbacks.figures import COLORS, GREY, save_figure, use_log_scale
from fedavg_app.cli.comparison import LINK, VIRTUAL, Comparison, largest_unit
from fedavg_app.cli.options import Panel
from fedavg_app.errors import ConfigError
from fedavg_app.results.comparison_names import Name
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
MATH, NO_BREAK = re.compile(r"\$[^$]*\$"), "\0"
# By panel, the columns of a course that it adds up, and the label of its axis.
PANELS: Mapping[Panel, tuple[Sequence[str], str]] = {
    Panel.ROUND: (["round"], "round"),
    Panel.UP: (["bytes_up"], "{} up, all clients"),
    Panel.DOWN: (["bytes_down"], "{} down, all clients"),
    Panel.BOTH: (["bytes_up", "bytes_down"], "{} up and down"),
    Panel.WALL: (["seconds"], "{}, wall clock"),
}
CLOCKS = {LINK: "{} on the link", VIRTUAL: "{} of virtual time"}


@rc_context()
def draw_comparison(
    compared: Sequence[Comparison],
    panels: Mapping[Panel, str],
    path: Path,
    width: float | None = None,
    ylim: tuple[float, float] | None = None,
    *,
    log: bool = False,
    dpi: int = 0,
) -> None:
    """Write a figure of the lines, with panels for each comparison.

    Lines have their method's colour and the line style of their other settings, the same in all
    figures of a sweep. Every run is drawn to its own end, which is marked if it did not finish:
    after its last test at the last value, dotted. For several runs these lines are thin, and a
    thick one is their mean, in a band from the smallest to the largest value, at the rounds in
    which all were tested.

    Args:
        compared: The runs.
        panels: What the objective is drawn by, with the label of its axis; empty for the usual.
        path: The file, .png, .pdf or .svg.
        width: In inches, with text of 8 points; None for a screen.
        ylim: The least and the largest value shown; None for all values.
        log: Whether all these axes are logarithmic, not those of bytes alone.
        dpi: A PNG's dots per inch; 0 for 300 with a width, and 150 without.

    Raises:
        ConfigError: The math in a name cannot be drawn.
        OSError: The file cannot be written.
    """
    rcParams.update(PRINT if width else {})
    in_a_row = _in_a_row(len(panels), width)
    lines = concat([each.numbers for each in compared]).drop_duplicates("run")
    check_math(lines["run"])
    looks = _looks(compared[0].names)
    names, columns, rows = _legend(list(lines["run"]), width)
    each = (width or WIDTH) / in_a_row
    down = len(panels) // in_a_row * len(compared)
    height = (0.35 * each + 0.9 if width else HEIGHT) * down + (0.16 if width else 0.2) * rows
    figure = Figure(figsize=(width or WIDTH, height), layout="constrained")
    axes = figure.subplots(down, in_a_row, sharey="row", squeeze=False)
    for of_one, shown in zip(compared, np.split(axes, len(compared)), strict=True):
        for (panel, label), panel_axes in zip(panels.items(), shown.flat, strict=True):
            _draw_panel(panel_axes, of_one, panel, label, looks)
            if panel_axes.lines and (log or panel in (Panel.UP, Panel.DOWN, Panel.BOTH)):
                use_log_scale(panel_axes, each)
            if of_one.target is not None:
                panel_axes.axhline(of_one.target, color=GREY, linestyle="--", linewidth=0.8)
        on_clients = any(run.on_clients for run in of_one.runs)
        limits = np.array([first.get_ylim() for first in shown[:, 0]])
        for first in shown[:, 0]:
            first.set_ylabel(f"{'' if on_clients else 'test '}{of_one.objective.name}")
            first.set_ylim(ylim or (limits.min(), limits.max()))
    legend = [
        Line2D([], [], label=name, marker=None if status == FINISHED else "x", **looks[method])
        for name, method, status in zip(names, lines["method"], lines["status"], strict=True)
    ]
    figure.legend(handles=legend, loc="outside lower center", ncols=columns)
    save_figure(figure, path, dpi or (PRINT_DPI if width else SCREEN_DPI))


def _looks(names: Sequence[Name]) -> dict[Name, dict[str, Any]]:
    """Return the look of every name: the method's colour, and its other settings' line style.

    Where only one of the two differs, or so many that two names could look alike, each name has
    both of its own.
    """
    methods, settings = (
        list(dict.fromkeys(parts)) for parts in zip(*map(astuple, names), strict=True)
    )
    apart = 1 < len(methods) <= len(COLORS) and 1 < len(settings) <= len(STYLES)
    places = {
        name: (methods.index(name.method), settings.index(name.setting)) if apart else (place,) * 2
        for place, name in enumerate(names)
    }
    return {
        name: {"color": COLORS[color % len(COLORS)], "linestyle": STYLES[style % len(STYLES)]}
        for name, (color, style) in places.items()
    }


def _draw_panel(
    axes: Axes,
    compared: Comparison,
    panel: Panel,
    label: str,
    looks: Mapping[Name, Any],
) -> None:
    keys, usual = PANELS.get(panel, ([compared.clock], CLOCKS.get(compared.clock, "")))
    largest = max(course[keys].iloc[-1].sum() for course in compared.courses)
    unit, scale = _unit(keys[0], largest)
    curves = [
        DataFrame({"place": course[keys].sum(axis="columns") / scale, "value": course["value"]})
        for course in compared.courses
    ]
    axes.set_xlabel((label or usual).format(unit))
    axes.grid(alpha=0.3)
    for _, line in compared.numbers.groupby("line", sort=False):
        of_line, look = [curves[at] for at in line.index], looks[line["method"].iloc[0]]
        # Central training sends nothing.
        if any(curve.dropna()["place"].any() for curve in of_line):
            _draw_line(axes, of_line, look)
        if line["status"].iloc[0] != FINISHED:
            _draw_ends(axes, of_line, look["color"])


def _unit(key: str, largest: float) -> tuple[str, float]:
    """Return the unit of an axis and its size: the largest in which its end is 2 or more."""
    if key == "round":
        return "", 1.0
    return largest_unit(BYTES if key.startswith("bytes") else SECONDS, largest, least=2)


def _draw_line(axes: Axes, curves: Sequence[DataFrame], look: Mapping[str, Any]) -> None:
    """Draw the runs of a line."""
    tested = [curve.dropna() for curve in curves]
    drawn = [axes.plot(curve["place"], curve["value"], **look)[0] for curve in tested]
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
    for curve in curves:
        tested = curve.dropna()
        if not tested.empty:
            (start, value), end = tested.iloc[-1], curve["place"].iloc[-1]
            axes.plot([start, end], [value, value], color=color, linestyle=":")
            axes.plot([end], [value], color=color, marker="x")


def _in_a_row(panels: int, width: float | None) -> int:
    """Return how many panels are beside each other, in rows of as many."""
    room = panels if width is None else max(int(width / LEAST_PANEL), 1)
    return next(number for number in range(min(room, panels), 0, -1) if panels % number == 0)


def _legend(names: Sequence[str], width: float | None) -> tuple[list[str], int, int]:
    """Return the names in lines that fit the figure, and the legend's columns and lines."""
    room = int(15 * width) if width else 150  # characters
    names = [_in_lines(name, room - LEGEND_HANDLE) for name in names]
    for columns in range(len(names), 0, -1):
        parts = [list(part) for part in np.array_split(names, columns)]  # as matplotlib does
        lines = [[line for name in part for line in name.split("\n")] for part in parts]
        if sum(max(map(len, part)) + LEGEND_HANDLE for part in lines) <= room:
            break
    return names, columns, max(map(len, lines))


def _in_lines(name: str, room: int) -> str:
    """Return a name in lines, which do not break its math, between two dollar signs."""
    whole = MATH.sub(lambda math: math[0].replace(" ", NO_BREAK), name)
    return fill(whole, room, break_on_hyphens=False).replace(NO_BREAK, " ")


def check_math(names: Iterable[str]) -> None:
    """Check that the math in names can be drawn.

    Raises:
        ConfigError: It cannot.
    """
    for name in filter(is_math_text, names):
        try:
            MathTextParser("path").parse(name)
        except ValueError as error:
            why = str(error).strip().splitlines()[-1]
            raise ConfigError("label", name, f"its math cannot be drawn: {why}") from error
