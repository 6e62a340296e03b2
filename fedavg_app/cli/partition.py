"""The command `partition`: each client's training examples by class, as a table and a picture."""

from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from fedavg_app.cli.options import with_config
from fedavg_app.config import RunConfig, with_clients
from fedavg_app.partitioning import make_partitioner, partition
from fedavg_app.partitioning.partitioner import find_labels

# Clients that the table shows; the picture shows all.
TABLE_ROWS = 20
# With more classes than this, counts by class make no readable table.
MAX_CLASSES = 20

Counts = NDArray[np.int64]


@with_config(RunConfig)
def show_partition(
    config: RunConfig,
    *,
    plot: Annotated[
        Path | None,
        typer.Option(
            help="draw the figure into this file: .png, .pdf or .svg",
            rich_help_panel="Output",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Show each client's training examples by class; the keys are those of run."""
    from fedavg_app.callbacks.figures import check_plot_path
    from fedavg_app.server.preparation import load_task

    if plot is not None:
        check_plot_path(plot)
    config = with_clients(config)
    task = load_task(config)
    data = task.dataset(config.data_options)
    by = make_partitioner(config.partition, config.partition_args.values).by
    parts, (targets, _) = partition(data, "train", config), find_labels(data, by)
    sizes, classes = parts.sizes, None
    if data.train.owners is not None and not by:
        targets = np.asarray(data.train.targets)
    if targets.ndim == 1 and targets.dtype.kind in "iu" and targets.max() < MAX_CLASSES:
        count = int(targets.max()) + 1
        classes = np.stack([np.bincount(targets[part], minlength=count) for part in parts])
    console = Console(highlight=False, soft_wrap=True, markup=False)
    console.print(f"data: {data.description}")
    print_table(sizes, classes, console)
    console.print(
        f"{len(sizes)} clients have {int(sizes.sum()):,} of {len(data.train):,} training examples, "
        f"each {_range(sizes)}"
    )
    if classes is not None:
        console.print(f"classes a client has: {_range((classes > 0).sum(axis=1))}")
    if plot is not None:
        scheme = " ".join(filter(None, (config.partition, config.partition_args)))
        draw(sizes, classes, f"{task.name}, {scheme}, seed {config.seed}", plot)
        console.print(f"picture: {plot}")


def print_table(sizes: Counts, classes: Counts | None, console: Console) -> None:
    """Print the first clients' numbers of examples, (K,), and of each class, (K, classes)."""
    num_classes = 0 if classes is None else classes.shape[1]
    table = Table()
    for heading in ("client", "all" if num_classes else "examples", *map(str, range(num_classes))):
        table.add_column(heading, justify="right")
    for client, size in enumerate(sizes[:TABLE_ROWS]):
        counts = [] if classes is None else classes[client]
        table.add_row(str(client), str(size), *(str(count or "") for count in counts))
    if num_classes:
        last = num_classes - 1
        console.print(f"training examples of each client: in all, and of each class (0 to {last})")
    console.print(table)
    if len(sizes) > TABLE_ROWS:
        console.print(f"... and {len(sizes) - TABLE_ROWS} more")


def draw(sizes: Counts, classes: Counts | None, title: str, path: Path) -> None:
    """Write a figure: every client's number of examples, and the share of each class in them."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    from fedavg_app.callbacks.figures import BLUE, save_figure

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
        shares = (classes / classes.sum(axis=1, keepdims=True)).T
        image = axes[1].imshow(shares, aspect="auto", cmap="Blues", interpolation="nearest")
        axes[1].set_title("share of each class in a client's examples", loc="left", fontsize=9)
        axes[1].set_ylabel("class")
        axes[1].yaxis.set_major_locator(MaxNLocator(integer=True))
        figure.colorbar(image, ax=axes[1], format="{x:.0%}")
    save_figure(figure, path)


def _range(values: Counts) -> str:
    low, middle, high = values.min(), np.median(values), values.max()
    return f"{low:,}" if low == high else f"{low:,} to {high:,} (median {middle:,.10g})"
