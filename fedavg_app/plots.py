"""The curves of one run as PNG."""

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from PIL import Image

from fedavg_app.history import RoundRecord, accuracy_curve
from tasks.data.atomic import replacing

# Okabe and Ito's colours, which people with any colour vision can tell apart.
BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#666666"


def plot_run(
    folder: Path, records: Sequence[RoundRecord], target: float | None, title: str
) -> None:
    """Write ``accuracy.png``, ``loss.png`` and, where bits travelled, ``accuracy-bits.png``."""
    save(_accuracy_against_rounds(records, target, title), folder / "accuracy.png")
    if any(records[-1].total.values()):
        save(_accuracy_against_bits(records, target, title), folder / "accuracy-bits.png")
    save(_losses(records, title), folder / "loss.png")


def _accuracy_against_rounds(
    records: Sequence[RoundRecord], target: float | None, title: str
) -> Figure:
    figure = _figure(f"Test accuracy: {title}", "accuracy")
    axes = figure.axes[0]
    tested = accuracy_curve(records)
    axes.plot(*zip(*tested, strict=True), color=BLUE, label="test set")
    for key, label, style in (
        ("accuracy-mean", "mean of the clients", "-"),
        ("accuracy-p10", "a tenth of the clients are below", ":"),
    ):
        points = [(r.round, r.client_metrics[key]) for r in records if key in r.client_metrics]
        if points:
            axes.plot(*zip(*points, strict=True), color=ORANGE, linestyle=style, label=label)
    _finish_accuracy(axes, target)
    return figure


def _accuracy_against_bits(
    records: Sequence[RoundRecord], target: float | None, title: str
) -> Figure:
    """Draw what all clients together have sent and received by each test of the model."""
    figure = _figure(f"Test accuracy by traffic: {title}", "accuracy")
    axes = figure.axes[0]
    for key, bits, label, color, style in (
        ("bytes_up", 8, "up, as sent", BLUE, "-"),
        ("theory_bits_up", 1, "up, by the formula", BLUE, ":"),
        ("bytes_down", 8, "down, as sent", ORANGE, "-"),
        ("theory_bits_down", 1, "down, by the formula", ORANGE, ":"),
    ):
        points = [
            (record.total[key] * bits, record.accuracy)
            for record in records
            if record.accuracy is not None and record.total.get(key)
        ]
        if points:
            axes.plot(*zip(*points, strict=True), color=color, linestyle=style, label=label)
    axes.set_xscale("log")
    axes.set_xlabel("bits, summed over clients and rounds")
    _finish_accuracy(axes, target)
    return figure


def _finish_accuracy(axes: Axes, target: float | None) -> None:
    if target:
        axes.axhline(target, color=GREY, linestyle="--", linewidth=1, label=f"target {target:g}")
    if axes.lines:
        axes.legend(loc="best")


def _losses(records: Sequence[RoundRecord], title: str) -> Figure:
    figure = _figure(f"Loss: {title}", "mean cross-entropy")
    axes = figure.axes[0]
    for attribute, label, color in (
        ("test_loss", "test set", BLUE),
        ("train_loss", "training", ORANGE),
    ):
        points = [
            (record.round, value)
            for record in records
            if (value := getattr(record, attribute)) is not None and value > 0
        ]
        if points:
            axes.plot(*zip(*points, strict=True), color=color, label=label)
    axes.set_yscale("log")
    if axes.lines:
        axes.legend(loc="upper right")
    return figure


def _figure(title: str, y_label: str) -> Figure:
    # Figure, not pyplot: no global state and no display, whatever thread this runs in.
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title, fontsize=10)
    axes.set_xlabel("round")
    axes.set_ylabel(y_label)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    return figure


def save(figure: Figure, path: Path) -> None:
    """Write the figure as PNG, all of it or nothing; with a palette, a third of the size."""
    drawn = BytesIO()
    figure.savefig(drawn, format="png", dpi=150)
    # Of Pillow's methods the one that keeps colours of few pixels, thin lines, as they are.
    picture = (
        Image.open(drawn)
        .convert("RGB")
        .quantize(256, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    )
    with replacing(path) as temporary:
        picture.save(temporary, format="PNG", optimize=True)
