"""The per-client data distribution as a table and as a picture: `simulation.py partition`."""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from fedavg_app.callbacks.plots import (
    BLUE,
    check_plot_path,
    reporting_plot_errors,
    save_figure,
)
from fedavg_app.config import RunConfig
from fedavg_app.partitioning.data_distribution import DataDistribution, data_distribution
from fedavg_app.server.run_components import check_partition, load_task

# Clients that the table shows; the picture shows all.
TABLE_ROWS = 20


def show(config: RunConfig, picture: Path | None) -> None:
    """Print the distribution of a run config, and draw it where a path is given.

    Raises:
        ConfigError: A value that cannot be used.
        DataError: The data set is not available.
    """
    if picture is not None:
        check_plot_path(picture)
    task = load_task(config)
    check_partition(config, task)
    data = task.dataset(config.data_options)
    distribution = data_distribution(data, config)
    console = Console(highlight=False, soft_wrap=True, markup=False)
    console.print(f"data: {data.description}")
    print_table(distribution, console)
    if picture is not None:
        partition = " ".join(filter(None, (config.partition, config.partition_args)))
        with reporting_plot_errors(picture):
            draw(distribution, f"{task.name}, {partition}, seed {config.seed}", picture)
        console.print(f"picture: {picture}")


def print_table(distribution: DataDistribution, console: Console) -> None:
    """Print the first clients' examples, and a summary of all."""
    sizes, classes = distribution.sizes, distribution.classes
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
    console.print(
        f"{len(sizes)} clients have {int(sizes.sum()):,} of {distribution.total:,} training "
        f"examples, each {_range(sizes)}"
    )
    if classes is not None:
        console.print(f"classes a client has: {_range((classes > 0).sum(axis=1))}")


def draw(distribution: DataDistribution, title: str, path: Path) -> None:
    """Write a PNG: every client's number of examples, and the share of each class in them."""
    sizes, classes = distribution.sizes, distribution.classes
    rows = 1 if classes is None else 2
    figure = Figure(figsize=(8, 2.8 * rows), layout="constrained")
    axes = figure.subplots(rows, 1, squeeze=False, sharex=True)[:, 0]
    axes[0].bar(range(len(sizes)), sizes, width=0.9 if len(sizes) <= 50 else 1.0, color=BLUE)
    axes[0].set_ylabel("training examples")
    axes[0].set_title(title, fontsize=10)
    axes[-1].set_xlabel("client")
    axes[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    if classes is not None:
        shares = classes / sizes[:, None]
        image = axes[1].imshow(
            shares.T, aspect="auto", cmap="cividis", vmin=0, vmax=1, interpolation="nearest"
        )
        axes[1].set_ylabel("class")
        axes[1].yaxis.set_major_locator(MaxNLocator(integer=True))
        figure.colorbar(image, ax=axes[1], label="share of the client's")
    save_figure(figure, path)


def _range(values: NDArray[np.int64]) -> str:
    low, middle, high = values.min(), np.median(values), values.max()
    return f"{low:,}" if low == high else f"{low:,} to {high:,} (median {middle:,.10g})"
