"""An experiment's learning curves as PNG: a panel for every column, a line for every row."""

import math
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fedavg_app.callbacks.figures import COLORS, GREY, save_figure, use_log_scale
from fedavg_app.config import RunConfig, TrainingConfig, parse_saved
from paper.experiments import Experiment, Measure
from paper.tables import Result, curve_of, spent

# The first seven lines differ in colour and style, all others of a table in one of the two.
STYLES = (
    "-", "--", "-.", ":", (0, (10, 2)), (0, (5, 1, 1, 1, 1, 1)), (0, (1, 3)), (0, (3, 4)),
)  # fmt: skip
PANELS_IN_A_ROW = 2
TARGET = "target"
PAPER = {"rounds": "the paper's rounds to the target", "iterations": "the paper's end"}
PAPER_STYLE: dict[str, Any] = {"linestyle": "", "marker": "D", "markerfacecolor": "none"}
Against = Literal["rounds", "iterations", "bytes", "minutes"]
# Strategies whose clients send as many values as the model has, every round.
DENSE = ("fedavg", "fedsgd")


def axes_of(experiment: Experiment) -> tuple[Against, ...]:
    """Return what a table's curves are drawn against: rounds or iterations, and bytes.

    Iterations where all runs have a number of local steps, as the STC paper counts: a round with n
    local steps is n iterations. Else no bytes where all runs train one task and send whole models
    or gradients: the bytes of a round are the same in all, and so are the curves. Minutes alone
    where those are measured.
    """
    if experiment.measure == "minutes-to-target":
        return ("minutes",)
    planned = [run.config for row in experiment.cells() for cell in row for run in cell.runs]
    if all(map(_local_steps, planned)):
        return "iterations", "bytes"
    federated = [config for config in planned if isinstance(config, RunConfig)]
    dense = all(config.strategy in DENSE for config in federated)
    one_task = len({config.task for config in federated}) == 1
    return ("rounds",) if dense and one_task else ("rounds", "bytes")


def draw_curves(
    experiment: Experiment, table: Sequence[Sequence[Result]], against: Against, path: Path
) -> None:
    """Write the best accuracy so far of the runs that each cell shows, its first seed's.

    There is a panel for every column of which anything was run; one at least has to be. Where both
    directions count, there are two: of what a participant sends, and of that and what it is sent.

    Args:
        experiment: The experiment.
        table: Its results by row and column.
        against: "rounds"; "iterations", the local steps of a client that takes part in all rounds;
            "bytes", the megabytes that such a client has sent, or been sent as well; or "minutes",
            what these take over the column's link.
        path: The PNG file.
    """
    columns = [column for column in zip(*table, strict=True) if any(each.best for each in column)]
    kinds = [experiment.measure]
    if against == "bytes" and experiment.measure == "traffic-to-target":
        kinds = ["upload-to-target", "traffic-to-target"]
    shown = [(column, kind) for column in columns for kind in kinds]
    across = min(len(shown), PANELS_IN_A_ROW)
    down = math.ceil(len(shown) / across)
    figure = Figure(figsize=(4.4 * across, 3.2 * down + 0.2 * len(table)), layout="constrained")
    axes = figure.subplots(down, across, sharey=True, squeeze=False).ravel()
    # Up to three times the errors that a target leaves: that is where the curves differ.
    targets = [target for row in table for result in row if (target := _target(result))]
    floor = max([0.0, *(1 - 3 * (1 - target) for target in targets)])
    axes[0].set_ylim(floor, max([each + (1 - each) / 4 for each in targets], default=1.0))
    for place, (column, kind) in enumerate(shown):
        axes[place].set_title(column[0].cell.column.name, fontsize=10)
        _draw_panel(axes[place], column, against, floor, kind)
        _mark_paper(axes[place], experiment, column, against)
        if place % across == 0:
            axes[place].set_ylabel("best test accuracy so far")
    for unused in axes[len(shown) :]:
        unused.remove()
    handles = {str(line.get_label()): line for panel in axes[: len(shown)] for line in panel.lines}
    for label in PAPER.values():
        if label in handles:
            handles[label] = Line2D([], [], color=GREY, label=label, **PAPER_STYLE)
    names = [*(row[0].cell.row.name for row in table), *PAPER.values(), TARGET]
    if ordered := [handles[name] for name in names if name in handles]:
        figure.legend(handles=ordered, loc="outside lower center", ncols=across)
    save_figure(figure, path)


def _target(result: Result) -> float | None:
    if not result.best:
        return None
    own: float | None = result.best[0].record.summary["target-accuracy"]
    return result.cell.column.target or own


def _mark_paper(
    axes: Axes, experiment: Experiment, results: Sequence[Result], against: Against
) -> None:
    """Mark where the paper's runs reach the target, or end, each in the colour of its curve."""
    end = experiment.paper_iterations
    for result, color in zip(results, cycle(COLORS), strict=False):
        target, paper = _target(result), result.cell.paper
        if not result.best or not isinstance(paper, float):
            continue
        if against == "rounds" and experiment.measure == "rounds-to-target" and target is not None:
            place = paper, target
        elif against == "iterations" and experiment.measure == "best-accuracy" and end is not None:
            place = end, paper
        else:
            continue
        axes.plot(*place, color=color, label=PAPER[against], **PAPER_STYLE)


def _draw_panel(
    axes: Axes, results: Sequence[Result], against: Against, floor: float, kind: Measure
) -> None:
    for result, color, style in zip(results, cycle(COLORS), cycle(STYLES), strict=False):
        if not result.best:
            continue
        record, column = result.best[0].record, result.cell.column
        curve = curve_of(record, column)
        accuracies = np.maximum.accumulate([accuracy for _, accuracy in curve])
        if against in ("bytes", "minutes"):
            is_cost = kind in ("traffic-to-target", "minutes-to-target")
            places = spent(record, kind if is_cost else "upload-to-target", column)
        else:
            steps = _local_steps(parse_saved(record.config)) if against == "iterations" else 1
            places = np.array([steps * number for number, _ in curve])
        # The axis is logarithmic. It has no place for the initial model, nor for a run that sends
        # nothing.
        start = max(int(np.searchsorted(accuracies, floor)) - 1, 1)
        if places[-1] > 0:
            # Tested only once: a line through one point is invisible.
            marker = "o" if len(curve) == 2 else ""
            axes.plot(
                places[start:], accuracies[start:],
                color=color, linestyle=style, marker=marker, label=result.cell.row.name,
            )  # fmt: skip
    for target in set(filter(None, map(_target, results))):
        axes.axhline(target, color=GREY, linewidth=1, label=TARGET)
    use_log_scale(axes)
    sent = "MB sent and received" if kind == "traffic-to-target" else "MB sent"
    labels = {
        "rounds": "round", "iterations": "iteration", "bytes": f"{sent} by one participant",
        "minutes": "minutes",
    }  # fmt: skip
    axes.set_xlabel(labels[against])
    axes.grid(alpha=0.3)


def _local_steps(config: TrainingConfig) -> int:
    """Return a run's local steps a round, 0 if it counts epochs."""
    return config.local_steps if isinstance(config, RunConfig) else 0
