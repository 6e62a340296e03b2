"""Compare runs: a table of accuracy and traffic, and a plot of one against the other.

    python -m results.stc_mnist.compare --out plot.png "STC=runs/...-stc-1a2b" "FedAvg=runs/..."
    python -m results.stc_mnist.compare --out plot.png --against rounds "SGD=runs/..." ...

Traffic is the total of a direction divided by the number of participants of a round, as the STC
paper counts it: what is sent by one that takes part in every round, and what a participant receives
on average, which is more where it has missed rounds. "Last fifth" is the mean accuracy of the last
fifth of the tests. With several groups, given as "group:label=folder", there is one column
of plots per group.
"""

import argparse
import json
from pathlib import Path
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from fedavg_app.callbacks.run_directory import CONFIG_FILE, HISTORY_FILE
from fedavg_app.server.metrics import RoundMetrics, read_history

# Okabe and Ito's colours; the style repeats the difference for who cannot see it.
STYLES = [
    ("#0072B2", "-"), ("#D55E00", "--"), ("#009E73", "-."), ("#CC79A7", ":"),
    ("#E69F00", (0, (5, 1))), ("#56B4E9", (0, (3, 1, 1, 1))), ("#000000", (0, (1, 2))),
]  # fmt: skip


# What accuracy is drawn against.
KINDS = {
    "rounds": "rounds (of centralised SGD: steps)",
    "iterations": "iterations per client",
    "bytes_up": "bits sent per participant",
    "bytes_down": "bits received per participant",
}


def tested_rounds(folder: Path) -> list[tuple[RoundMetrics, float]]:
    """Return a run's tested rounds with their accuracies, without the initial model."""
    return [
        (metrics, metrics.accuracy)
        for metrics in read_history(folder / HISTORY_FILE)
        if metrics.round and metrics.accuracy is not None
    ]


def local_steps(folder: Path) -> int:
    """Return how many SGD steps a client takes in a round of this run."""
    return int(json.loads((folder / CONFIG_FILE).read_text()).get("local-steps") or 1)


def describe(folder: Path, until: int | None) -> list[str]:
    """Return the table's cells for a run, up to an iteration (None: all of it)."""
    steps = local_steps(folder)
    tested = [
        (metrics, accuracy)
        for metrics, accuracy in tested_rounds(folder)
        if until is None or metrics.round * steps <= until
    ]
    accuracies = [accuracy for _, accuracy in tested]
    last_fifth = accuracies[-max(1, len(accuracies) // 5) :]
    last, _ = tested[-1]
    traffic = [
        last.total.get(key, 0) * bits / max(last.participants, 1) / 1e6
        for key, bits in (("bytes_up", 8), ("theory_bits_up", 1), ("bytes_down", 8))
    ]
    return [
        str(last.round * steps),
        *(f"{value:.4f}" for value in (accuracies[-1], fmean(last_fifth), max(accuracies))),
        *(f"{value:,.2f}" for value in traffic),
    ]


def draw(axes: Axes, runs: dict[str, Path], labels: list[str], against: str) -> None:
    """Draw the runs' accuracy against one of `KINDS`; what sent nothing is left out there."""
    for label, folder in runs.items():
        color, style = STYLES[labels.index(label) % len(STYLES)]
        points = []
        for metrics, accuracy in tested_rounds(folder):
            if against in ("rounds", "iterations"):
                x = metrics.round * (local_steps(folder) if against == "iterations" else 1)
            elif metrics.participants:
                x = 8 * metrics.total[against] / metrics.participants
            else:
                continue
            points.append((x, accuracy))
        if points:
            axes.plot(*zip(*points, strict=True), color=color, linestyle=style, label=label)
    if against != "iterations":
        axes.set_xscale("log")
    axes.grid(alpha=0.3)


def main() -> None:
    """Print the table; draw the plot."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("runs", nargs="+", metavar="[GROUP:]LABEL=FOLDER")
    parser.add_argument("--out", type=Path, help="where the plot goes; none without")
    parser.add_argument("--until", type=int, help="the iteration at which the table is read")
    parser.add_argument("--against", default="iterations,bytes_up,bytes_down",
                        help=f"the plots' x axes, of: {','.join(KINDS)}")  # fmt: skip
    parser.add_argument("--lowest", type=float, default=0.0, help="where the accuracy axis begins")
    given = parser.parse_args()
    if unknown := set(given.against.split(",")) - set(KINDS):
        parser.error(f"--against: no such axis: {', '.join(sorted(unknown))}")
    groups: dict[str, dict[str, Path]] = {}
    for run in given.runs:
        name, _, folder = run.rpartition("=")
        group, _, label = name.rpartition(":")
        groups.setdefault(group, {})[label] = Path(folder)
    table = Table()
    for column in (
        "group", "run", "iterations", "accuracy", "last fifth", "best",
        "Mbit up", "by formula", "Mbit down",
    ):  # fmt: skip
        table.add_column(column, justify="right")
    for group, runs in groups.items():
        for label, folder in runs.items():
            table.add_row(group, label, *describe(folder, given.until))
    Console(width=150).print(table)
    if given.out:
        draw_all(groups, given.against.split(","), given.lowest, given.out)


def draw_all(
    groups: dict[str, dict[str, Path]], kinds: list[str], lowest: float, out: Path
) -> None:
    """Write the figure: a column per group, a row per kind of x axis."""
    labels = list(dict.fromkeys(label for runs in groups.values() for label in runs))
    width = max(4 * len(groups), 6)
    figure = Figure(figsize=(width, 3 * len(kinds) + 0.6), layout="constrained")
    grid = figure.subplots(len(kinds), len(groups), squeeze=False, sharey=True)
    for column, (group, runs) in enumerate(groups.items()):
        for row, against in enumerate(kinds):
            axes = grid[row][column]
            draw(axes, runs, labels, against)
            axes.set_xlabel(KINDS[against])
            axes.set_ylim(bottom=lowest)
            if not row:
                axes.set_title(group)
            if not column:
                axes.set_ylabel("test accuracy")
    lines = {line.get_label(): line for axes in grid[0] for line in axes.lines}
    figure.legend(
        [lines[label] for label in labels],
        labels,
        loc="outside lower center",
        ncols=max(2 * len(groups), 3),
    )
    figure.savefig(out, dpi=110)
    print(out)


if __name__ == "__main__":
    main()
