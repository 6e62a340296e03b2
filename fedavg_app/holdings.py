"""Who has what: a partition as a table and as a picture."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from fedavg_app.config import RunConfig
from fedavg_app.errors import ConfigError
from fedavg_app.partitions import partition
from fedavg_app.parts import check_scheme, load_task
from fedavg_app.plots import BLUE, save
from tasks.data.store import Dataset

# With more classes than this, counts by class are no table that anyone reads.
MOST_CLASSES = 20
# Clients that the table shows; the picture shows all.
ROWS = 20


@dataclass(frozen=True)
class Holdings:
    """What each client has.

    Attributes:
        sizes: Training examples by client, (K,).
        classes: Training examples by client and class, (K, classes); None where examples have no
            single class.
        total: All training examples, those of no client included.
    """

    sizes: NDArray[np.int64]
    classes: NDArray[np.int64] | None
    total: int


def show(config: RunConfig, picture: Path | None) -> None:
    """Print who has what under a run config, and draw it where a path is given.

    Raises:
        ConfigError: A value that cannot be used.
        DataError: The data set cannot be had.
    """
    if picture is not None and not picture.parent.is_dir():
        raise ConfigError("plot", str(picture), "its folder does not exist; make it first")
    task = load_task(config)
    check_scheme(config, task)
    data = task.dataset(config.data_options)
    holdings = find_holdings(data, config)
    console = Console(highlight=False, soft_wrap=True, markup=False)
    console.print(f"data: {data.description}")
    print_table(holdings, console)
    if picture is not None:
        scheme = " ".join(filter(None, (config.partition, config.partition_args)))
        try:
            draw(holdings, f"{task.name}, {scheme}, seed {config.seed}", picture)
        except OSError as error:
            raise ConfigError(
                "plot", str(picture), f"cannot write it ({error.strerror})"
            ) from error
        console.print(f"picture: {picture}")


def find_holdings(data: Dataset, config: RunConfig) -> Holdings:
    """Return who has what of the training set.

    Raises:
        ConfigError: The data cannot be split like that.
    """
    parts = partition(data, "train", config)
    targets = data.train.targets
    classes = None
    if targets.ndim == 1 and targets.max() < MOST_CLASSES:
        count = int(targets.max()) + 1
        classes = np.stack([np.bincount(targets[part], minlength=count) for part in parts])
    sizes = np.array([len(part) for part in parts], dtype=np.int64)
    return Holdings(sizes, classes, len(targets))


def print_table(holdings: Holdings, console: Console) -> None:
    """Print the first clients' examples, and what all have in a few numbers."""
    table = Table()
    table.add_column("client", justify="right")
    table.add_column("examples", justify="right")
    for number in range(0 if holdings.classes is None else holdings.classes.shape[1]):
        table.add_column(f"class {number}", justify="right")
    for client, size in enumerate(holdings.sizes[:ROWS]):
        counts = [] if holdings.classes is None else holdings.classes[client]
        table.add_row(str(client), str(size), *(str(count or "") for count in counts))
    console.print(table)
    if len(holdings.sizes) > ROWS:
        console.print(f"... and {len(holdings.sizes) - ROWS} more")
    held = int(holdings.sizes.sum())
    console.print(
        f"{len(holdings.sizes)} clients have {held:,} of {holdings.total:,} training examples, "
        f"each {_range(holdings.sizes)}"
    )
    if holdings.classes is not None:
        console.print(f"classes a client has: {_range((holdings.classes > 0).sum(axis=1))}")


def draw(holdings: Holdings, title: str, path: Path) -> None:
    """Write a PNG: every client's number of examples, and the share of each class in them."""
    rows = 1 if holdings.classes is None else 2
    figure = Figure(figsize=(8, 2.8 * rows), layout="constrained")
    axes = figure.subplots(rows, 1, squeeze=False, sharex=True)[:, 0]
    axes[0].bar(
        range(len(holdings.sizes)),
        holdings.sizes,
        width=0.9 if len(holdings.sizes) <= 50 else 1.0,
        color=BLUE,
    )
    axes[0].set_ylabel("training examples")
    axes[0].set_title(title, fontsize=10)
    axes[-1].set_xlabel("client")
    axes[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    if holdings.classes is not None:
        shares = holdings.classes / holdings.sizes[:, None]
        picture = axes[1].imshow(
            shares.T, aspect="auto", cmap="cividis", vmin=0, vmax=1, interpolation="nearest"
        )
        axes[1].set_ylabel("class")
        axes[1].yaxis.set_major_locator(MaxNLocator(integer=True))
        figure.colorbar(picture, ax=axes[1], label="share of the client's")
    save(figure, path)


def _range(values: NDArray[np.int64]) -> str:
    low, middle, high = values.min(), np.median(values), values.max()
    return f"{low:,}" if low == high else f"{low:,} to {high:,} (median {middle:,.10g})"
