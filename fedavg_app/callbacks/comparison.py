"""A figure of several trainings: test accuracy by round, by bytes and by seconds."""

from collections.abc import Mapping, Sequence
from itertools import accumulate, cycle
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from rich.filesize import decimal

from fedavg_app.callbacks.plots import COLORS, GREY, save_figure
from fedavg_app.results.metrics import RoundMetrics

STYLES = ("-", "--", "-.", ":")


def draw_comparison(
    curves: Mapping[str, Sequence[RoundMetrics]], target: float | None, path: Path
) -> None:
    """Write a PNG with three panels, each with a line for every training.

    Args:
        curves: The rounds of each training, by its name.
        target: An accuracy to draw as a line; None for none.
        path: The file.

    Raises:
        OSError: It cannot be written.
    """
    figure = Figure(figsize=(12, 3.8 + 0.2 * len(curves)), layout="constrained")
    axes = figure.subplots(1, 3, sharey=True)
    colors, styles = cycle(COLORS), cycle(STYLES)
    for name, history in curves.items():
        color, style = next(colors), next(styles)
        seconds = list(accumulate(metrics.seconds for metrics in history))
        points = [
            (one.round, one.total.get("bytes_up", 0), passed, one.accuracy)
            for one, passed in zip(history, seconds, strict=True)
            if one.accuracy is not None
        ]
        *against, accuracies = zip(*points, strict=True) if points else [()] * 4
        for panel, places in zip(axes, against, strict=True):
            panel.plot(places, accuracies, color=color, linestyle=style, label=name)
    axes[0].set(xlabel="round", ylabel="test accuracy")
    axes[1].set(xlabel="bytes that all clients have sent")
    if any(history[-1].total.get("bytes_up") for history in curves.values()):
        # The initial model, before anything was sent, has no place on this axis.
        axes[1].set_xscale("log", nonpositive="mask")
    axes[1].xaxis.set_major_formatter(FuncFormatter(lambda value, _: decimal(int(value))))
    axes[2].set(xlabel="seconds")
    for panel in axes:
        panel.grid(alpha=0.3)
        if target is not None:
            panel.axhline(target, color=GREY, linestyle="--", linewidth=1)
    handles, names = axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=min(len(names), 3))
    save_figure(figure, path)
