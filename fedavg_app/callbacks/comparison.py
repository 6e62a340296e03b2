"""A figure of several trainings: test accuracy by round, by bytes and by time."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fedavg_app.callbacks.plots import COLORS, GREY, save_figure, use_log_scale
from fedavg_app.results.comparison import Clock
from fedavg_app.results.finished_run import FinishedRun

STYLES = ("-", "--", "-.", ":")
# Characters of a legend's names that fit beside each other below the figure.
LEGEND_WIDTH = 150
MAX_LEGEND_COLUMNS = 4
BYTES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
SECONDS = ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes"))


def draw_comparison(
    lines: Mapping[str, Sequence[FinishedRun]],
    target: float | None,
    time_name: str,
    clock: Clock,
    path: Path,
) -> None:
    """Write a figure with three panels, each with the lines of `group_runs`.

    For several runs the line is their mean, in a band from the smallest to the largest value, at
    the rounds in which all of them were tested.

    Args:
        lines: The runs of each line, by its name.
        target: An accuracy to draw as a line; None for none.
        time_name: The name of the clock: "seconds", "seconds_link" or "seconds_virtual".
        clock: Says how much time has passed.
        path: The file, .png, .pdf or .svg.

    Raises:
        OSError: It cannot be written.
    """
    curves = {name: _curve(runs, clock) for name, runs in lines.items()}
    columns = _legend_columns(list(curves))
    height = 3.8 + 0.2 * -(-len(curves) // columns)
    figure = Figure(figsize=(12, height), layout="constrained")
    axes = figure.subplots(1, 3, sharey=True)
    sent = _unit(max((float(one[1].max(initial=0)) for one in curves.values()), default=0), BYTES)
    time = _unit(max((float(one[2].max(initial=0)) for one in curves.values()), default=0), SECONDS)
    scales = (1.0, sent[0], time[0])
    for (name, curve), color, style in zip(
        curves.items(), cycle(COLORS), cycle(STYLES), strict=False
    ):
        for panel, places, scale in zip(axes, curve[:3], scales, strict=True):
            least, mean, most = curve[3:]
            if not places.any():
                continue  # a central training sends nothing
            panel.plot(places / scale, mean, color=color, linestyle=style, label=name)
            panel.fill_between(places / scale, least, most, color=color, alpha=0.2, linewidth=0)
    axes[0].set(xlabel="round", ylabel="test accuracy")
    axes[1].set(xlabel=f"{sent[1] or 'bytes'} that all clients have sent")
    if any(curve[1].any() for curve in curves.values()):
        use_log_scale(axes[1])
    what = {"seconds_link": " on the link", "seconds_virtual": " of virtual time"}.get(
        time_name, ""
    )
    axes[2].set(xlabel=f"{time[1] or 'seconds'}{what}")
    for panel in axes:
        panel.grid(alpha=0.3)
        if target is not None:
            panel.axhline(target, color=GREY, linestyle="--", linewidth=1)
    handles, names = axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=columns)
    save_figure(figure, path)


def _curve(runs: Sequence[FinishedRun], clock: Clock) -> list[NDArray[np.float64]]:
    """Return rounds, bytes sent, seconds, and the least, mean and largest accuracy there."""
    tested = [
        {
            one.round: (one.total.get("bytes_up", 0), passed, one.accuracy)
            for one, passed in zip(run.history, clock(run.history), strict=True)
            if one.accuracy is not None
        }
        for run in runs
    ]
    rounds = [number for number in tested[0] if all(number in run for run in tested)]
    points = np.array([[run[number] for number in rounds] for run in tested], float)
    sent, passed, accuracy = points.reshape(len(tested), len(rounds), 3).transpose(2, 0, 1)
    return [
        np.array(rounds, float), sent.mean(axis=0), passed.mean(axis=0),
        accuracy.min(axis=0), accuracy.mean(axis=0), accuracy.max(axis=0),
    ]  # fmt: skip


def _unit(largest: float, units: Sequence[tuple[float, str]]) -> tuple[float, str]:
    """Return the size and the name of the largest unit in which the value is 2 or more."""
    return next(((size, name) for size, name in units if largest >= 2 * size), (1.0, ""))


def _legend_columns(names: Sequence[str]) -> int:
    longest = max(map(len, names), default=1) + 6  # the line beside it
    return min(len(names), MAX_LEGEND_COLUMNS, max(LEGEND_WIDTH // longest, 1))
