"""Figures by matplotlib: a training's curves, and what other figures share."""

import math
import os
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from textwrap import fill
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import (
    EngFormatter,
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    NullFormatter,
)
from PIL import Image

from fedavg_app.callbacks.base import TrainingRun
from fedavg_app.errors import ConfigError
from fedavg_app.results.history import RoundMetrics, TrainingResult, statistic
from fedavg_app.results.run_folder import reporting_write_errors
from fedavg_app.training_plan import TrainingPlan
from tasks.base import is_cross_entropy
from tasks.data.atomic_file import replacing
from tasks.objective import LOSS

# Okabe and Ito's colours, which people with any colour vision can tell apart, without yellow, which
# is hard to see on white.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
BLUE, ORANGE = COLORS[:2]
GREY = "#666666"
TITLE_WIDTH = 84  # characters
# An axis that spans more than this factor on a panel of this width, in inches, is labelled at the
# powers of ten only.
MANY_TICKS, PANEL_WIDTH = 300, 4.0
FORMATS = (".png", ".pdf", ".svg")


def save_curves(run: TrainingRun, result: TrainingResult) -> None:
    """Plot the losses and each metric against rounds, and the objective against bits sent.

    Args:
        run: The training; the figures go to its folder.
        result: Its result, with at least one round.

    Raises:
        RunError: A file cannot be written.
    """
    history, folder, plan = result.history, run.folder, run.plan
    title, loss = run.title, run.task.loss
    names = dict.fromkeys(name for metrics in history for name in metrics.tested)
    with reporting_write_errors(folder):
        for name in names.keys() - {LOSS}:
            target = plan.target if name == plan.objective.name else None
            save_figure(_metric(history, name, target, title), folder / f"{name}.png")
        if any(history[-1].total.values()):
            figure = _objective_against_bytes(history, plan, title)
            save_figure(figure, folder / f"{plan.objective.name}-bytes.png")
        kind = "mean cross-entropy" if is_cross_entropy(loss) else "loss"
        save_figure(_losses(history, kind, title), folder / "loss.png")


def _metric(history: Sequence[RoundMetrics], name: str, target: float | None, title: str) -> Figure:
    figure = _figure(f"Test {name}: {title}", name)
    axes = figure.axes[0]
    for on, style in (("tested", "-"), ("validation_metrics", "--")):
        points = [
            (each.round, getattr(each, on)[name]) for each in history if name in getattr(each, on)
        ]
        label = "test set" if on == "tested" else "validation examples"
        _plot(axes, points, color=BLUE, linestyle=style, label=label)
    _plot_clients(axes, [each for each in history if each.client_values.get(name)], name)
    _finish(axes, target)
    return figure


def _plot_clients(axes: Axes, history: Sequence[RoundMetrics], name: str) -> None:
    """Draw the distribution of a metric over the clients that tested in these rounds."""
    if not history:
        return
    rounds = [metrics.round for metrics in history]
    # If less is better, the tenth that the history has is the 90th percentile.
    higher = f"{name}-p90" not in history[-1].client_metrics
    mean, worst, low, high = (
        [
            statistic(each.client_values[name].values(), of, higher_is_better=higher)
            for each in history
        ]
        for of in ("mean", "worst", "p10", "p90")
    )
    axes.plot(rounds, mean, color=ORANGE, label="mean of the clients")
    axes.plot(rounds, worst, ":", color=ORANGE, label="worst client")
    axes.fill_between(
        rounds, low, high, color=ORANGE, alpha=0.2, label="10th to 90th percentile of the clients"
    )


def _objective_against_bytes(
    history: Sequence[RoundMetrics], plan: TrainingPlan, title: str
) -> Figure:
    """Draw the objective by what all clients together have sent and received."""
    whose, name = "Clients' own" if plan.on_clients else "Test", plan.objective.name
    figure = _figure(f"{whose} {name} by traffic: {title}", name)
    axes = figure.axes[0]
    # The curves of up and down may coincide, so up is drawn broad, and below the other.
    for key, parts, label, color, style, width in (
        ("bytes_up", 1, "up, as sent", BLUE, "-", 4.5),
        ("theory_bits_up", 8, "up, by the formula", BLUE, ":", 4.5),
        ("bytes_down", 1, "down, as sent", ORANGE, "-", 1.5),
        ("theory_bits_down", 8, "down, by the formula", ORANGE, ":", 1.5),
    ):
        points = [
            (metrics.total[key] / parts, score)
            for metrics in history
            if (score := metrics.result(plan.objective, on_clients=plan.on_clients)) is not None
            and metrics.total.get(key)
        ]
        _plot(axes, points, color=color, linestyle=style, linewidth=width, label=label)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(EngFormatter("B"))
    axes.set_xlabel("sent, summed over clients and rounds")
    _finish(axes, plan.target)
    return figure


def _finish(axes: Axes, target: float | None) -> None:
    if target is not None:
        axes.axhline(target, color=GREY, linestyle="--", linewidth=1, label=f"target {target:g}")
    if axes.lines:
        axes.legend(loc="best")


def _losses(history: Sequence[RoundMetrics], kind: str, title: str) -> Figure:
    figure = _figure(f"Loss: {title}", kind)
    axes = figure.axes[0]
    lowest = math.inf
    for name, label, color in (("test_loss", "test set", BLUE), ("train_loss", "training", ORANGE)):
        values = [(metrics.round, getattr(metrics, name)) for metrics in history]
        points = [
            (number, loss) for number, loss in values if loss is not None and math.isfinite(loss)
        ]
        _plot(axes, points, color=color, label=label)
        lowest = min([lowest, *(loss for _, loss in points)])
    if lowest > 0:
        axes.set_yscale("log")
    if axes.lines:
        axes.legend(loc="upper right")
    return figure


def _plot(axes: Axes, points: Sequence[tuple[float, float]], **style: Any) -> None:
    """Draw a curve, unless it has no points: the legend would still name it."""
    if points:
        axes.plot(*zip(*points, strict=True), **style)


def _figure(title: str, y_label: str) -> Figure:
    # Figure, not pyplot: no global state and no display, whatever thread this runs in.
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(fill(title, TITLE_WIDTH), fontsize=10)
    axes.set_xlabel("round")
    axes.set_ylabel(y_label)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    return figure


def use_log_scale(axes: Axes, width: float = PANEL_WIDTH) -> None:
    """Make the x axis, of a width in inches, logarithmic, with plain numbers; 0 is not on it."""
    axes.set_xscale("log", nonpositive="mask")
    first, last = axes.get_xlim()
    many = last / first >= MANY_TICKS ** (width / PANEL_WIDTH)
    axes.xaxis.set_major_locator(LogLocator(subs=(1,) if many else (1, 2, 5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())


def save_figure(figure: Figure, path: Path, dpi: int = 150) -> None:
    """Write the figure as PNG, PDF or SVG, atomically; a palette makes a PNG a third as large.

    A PDF has its fonts as type 42, which publishers ask for.
    """
    if (kind := path.suffix.lower()[1:]) != "png":
        with replacing(path) as temporary, rc_context({"pdf.fonttype": 42}):
            figure.savefig(temporary, format=kind)
        return
    drawn = BytesIO()
    figure.savefig(drawn, format="png", dpi=dpi)
    # The method of Pillow that keeps the colours of thin lines.
    picture = (
        Image.open(drawn)
        .convert("RGB")
        .quantize(256, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    )
    with replacing(path) as temporary:
        picture.save(temporary, format="PNG", optimize=True)


def check_plot_path(path: Path) -> None:
    """Check the file that a command's ``--plot`` names, before the work that the figure shows.

    Raises:
        ConfigError: It is none of the formats, or its folder cannot be written.
    """
    if path.suffix.lower() not in FORMATS:
        raise ConfigError("plot", str(path), f"give a name that ends in {', '.join(FORMATS)}")
    if not os.access(path.parent, os.W_OK):
        raise ConfigError("plot", str(path), "give a folder that exists and can be written")
