"""The per-client data distribution as a table and as a picture: `simulation.py partition`."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from fedavg_app.callbacks.plots import BLUE, ORANGE, check_plot_path, save_figure
from fedavg_app.config import RunConfig
from fedavg_app.partitioning.partitions import partition
from fedavg_app.server.preparation import load_task

# Clients that the table shows; the picture shows all.
TABLE_ROWS = 20
# With more classes than this, counts by class make no readable table.
MAX_CLASSES = 20
# White where a client's share is that of all.
FEWER_TO_MORE = LinearSegmentedColormap.from_list("fewer-to-more", [BLUE, "white", ORANGE])

Counts = NDArray[np.int64]


def show(config: RunConfig, picture: Path | None) -> None:
    """Print the distribution of a run config, and draw it where a path is given.

    Raises:
        ConfigError: A value that cannot be used.
        DataError: The data set is not available.
    """
    if picture is not None:
        check_plot_path(picture)
    task = load_task(config)
    data = task.dataset(config.data_options)
    parts, targets = partition(data, "train", config), data.train.targets
    sizes, classes = np.array([len(part) for part in parts]), None
    if targets.ndim == 1 and targets.max() < MAX_CLASSES:
        count = int(targets.max()) + 1
        classes = np.stack([np.bincount(targets[part], minlength=count) for part in parts])
    console = Console(highlight=False, soft_wrap=True, markup=False)
    console.print(f"data: {data.description}")
    print_table(sizes, classes, console)
    console.print(
        f"{len(sizes)} clients have {int(sizes.sum()):,} of {len(targets):,} training examples, "
        f"each {_range(sizes)}"
    )
    if classes is not None:
        console.print(f"classes a client has: {_range((classes > 0).sum(axis=1))}")
    if picture is not None:
        scheme = " ".join(filter(None, (config.partition, config.partition_args)))
        draw(sizes, classes, f"{task.name}, {scheme}, seed {config.seed}", picture)
        console.print(f"picture: {picture}")


def print_table(sizes: Counts, classes: Counts | None, console: Console) -> None:
    """Print the first clients' numbers of examples, (K,), and of each class, (K, classes)."""
    table = Table()
    table.add_column("client", justify="right")
    table.add_column("examples", justify="right")
    for number in range(0 if classes is None else classes.shape[1]):
        table.add_column(f"class {number}", justify="right")
    for client, size in enumerate(sizes[:TABLE_ROWS]):
        counts = [] if classes is None else classes[client]
        table.add_row(str(client), str(size), *(str(count or "") for count in counts))
    console.print(table)
    if len(sizes) > TABLE_ROWS:
        console.print(f"... and {len(sizes) - TABLE_ROWS} more")


def draw(sizes: Counts, classes: Counts | None, title: str, path: Path) -> None:
    """Write a PNG: every client's number of examples, and how far its classes are from average.

    The colours of classes reach as far as the deviations do: under IID, too, where all clients have
    nearly the same shares, one sees who has more or less of what.
    """
    rows = 1 if classes is None else 2
    figure = Figure(figsize=(8, 2.9 * rows), layout="constrained")
    figure.suptitle(title, fontsize=10)
    axes = figure.subplots(rows, 1, squeeze=False, sharex=True)[:, 0]
    axes[0].bar(range(len(sizes)), sizes, width=0.8 if len(sizes) <= 150 else 1.0, color=BLUE)
    axes[0].set_title(f"training examples of a client: {_range(sizes)}", loc="left", fontsize=9)
    axes[0].set_ylabel("examples")
    axes[-1].set_xlabel("client")
    axes[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    if classes is not None:
        _draw_deviations(axes[1], classes)
    save_figure(figure, path)


def _draw_deviations(axes: Axes, classes: Counts) -> None:
    """Draw each class's share of a client's examples, less that of all clients'."""
    shares = classes / classes.sum(axis=1, keepdims=True)
    points = 100 * (shares - classes.sum(axis=0) / classes.sum())
    largest = max(np.abs(points).max(), 1e-9)
    image = axes.imshow(
        points.T,
        aspect="auto", cmap=FEWER_TO_MORE, vmin=-largest, vmax=largest, interpolation="nearest",
    )  # fmt: skip
    axes.set_title(
        "share of each class, less its share in all clients' examples: "
        f"{points.min():+.1f} to {points.max():+.1f} percentage points",
        loc="left",
        fontsize=9,
    )
    axes.set_ylabel("class")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    bar = axes.figure.colorbar(
        image, ax=axes, format=lambda value, _: f"{value:+g}" if value else "0"
    )
    bar.set_label("percentage points")


def _range(values: Counts) -> str:
    low, middle, high = values.min(), np.median(values), values.max()
    return f"{low:,}" if low == high else f"{low:,} to {high:,} (median {middle:,.10g})"
