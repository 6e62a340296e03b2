"""Comparisons as tables on the terminal and as CSV."""

import csv
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from io import StringIO
from statistics import fmean, stdev
from typing import Literal, NamedTuple

import rich.table
from rich.console import Console
from rich.filesize import decimal

from fedavg_app.budget import duration
from fedavg_app.results.comparison import TO_TARGET, Cost
from fedavg_app.results.comparison_lines import SEED, Line
from fedavg_app.results.finished_run import FinishedRun
from tasks.objective import show_metric

# The headings of columns whose keys, with the unit, are for programs.
HEADINGS = {
    "bytes_up": "up", "bytes_down": "down", "seconds_link": "link", "seconds_virtual": "virtual",
}  # fmt: skip
# Columns of a terminal on which a table has the width that it asks for, and those for a name.
WIDE, LEAST_NAME = 1000, 10
# How the keys of columns begin that have values of the objective.
VALUES = ("best_", "final_")
# The dash of a range.
RANGE = re.compile(r"(?<=\d)-(?=\d)")
# What stands beside a mean: the sample standard deviation, the least and the largest, or nothing
# since every run has its own row.
Spread = Literal["std", "range", "runs"]
STATISTICS: Mapping[str, Callable[[Sequence[float]], float | str]] = {
    "mean": fmean, "std": lambda found: stdev(found) if len(found) > 1 else "", "min": min,
    "max": max, "count": len,
}  # fmt: skip


class Row(NamedTuple):
    """A line of the comparison, and what each of its runs took."""

    line: Line
    costs: Sequence[Cost]

    def values(self, key: str) -> list[float]:
        """Return the values of the runs that have a value."""
        return [value for cost in self.costs if (value := cost[key]) is not None]


Table = Sequence[Row]


def each_run(table: Table) -> Table:
    """Return a row for every run, whose name has the seed."""
    return [
        Row(replace(line, method=f"{line.method}, seed {run.config[SEED]}", runs=[run]), [cost])
        for line, costs in table
        for run, cost in sorted(zip(line.runs, costs, strict=True), key=_seed)
    ]


def _seed(pair: tuple[FinishedRun, Cost]) -> int:
    return int(pair[0].config[SEED])


def print_table(title: str, table: Table, spread: Spread, *, to_target: bool = False) -> None:
    """Print the table; less of it on a narrow terminal.

    Args:
        title: The table's title.
        table: The rows.
        spread: What follows a mean.
        to_target: Whether it shows the columns up to a target, or those of whole runs.
    """
    console = Console(highlight=False, markup=False)
    longest = max(len(row.line.name) for row in table)
    for narrow in (False, True):
        shown = _on_terminal(title, table, spread, to_target=to_target, narrow=narrow)
        whole = console.measure(shown, options=console.options.update(width=WIDE)).maximum
        if whole - longest + min(longest, LEAST_NAME) <= console.width:
            break  # only names are folded
    else:
        for column in shown.columns:
            column.no_wrap = False
    console.print(shown)


def _on_terminal(
    title: str, table: Table, spread: Spread, *, to_target: bool, narrow: bool
) -> rich.table.Table:
    """Return a table; a narrow table has no room around cells, and breaks ranges.

    It leaves out "rejected" if nothing was.
    """
    keys = [key for key in table[0].costs[0] if key.endswith(TO_TARGET) == to_target]
    if narrow:
        keys = [key for key in keys if not _zero_rejected(key, table)]
    shown = rich.table.Table(title=title, title_justify="left", padding=(0, 0 if narrow else 1))
    shown.add_column("run", overflow="fold")
    shown.add_column("status", overflow="fold", no_wrap=True)
    for key in keys:
        shown.add_column(heading(key), justify="right", overflow="fold", no_wrap=True)
    space = "\n" if narrow else " "
    for row in table:
        number = f"{len(row.costs)}{space}" if len(row.costs) > 1 else ""
        texts = [_cell(key, row, spread) for key in keys]
        if narrow:
            texts = [RANGE.sub("-\n", text).replace("± ", "±") for text in texts]
        shown.add_row(row.line.name, f"{number}{row.line.status}", *texts)
    return shown


def _zero_rejected(key: str, table: Table) -> bool:
    return key.startswith("rejected") and not any(any(row.values(key)) for row in table)


def heading(key: str) -> str:
    """Return the heading of a column."""
    key = key.removesuffix(TO_TARGET)
    return key.partition("_")[0] if key.startswith(VALUES) else HEADINGS.get(key, key)


def _cell(key: str, row: Row, spread: Spread) -> str:
    found = row.values(key)
    if not found:
        return "-"
    text, least, most = (_shown(key, value) for value in (fmean(found), min(found), max(found)))
    if least != most and spread == "range":
        number, _, unit = least.partition(" ")
        text += f"\n({number if most.endswith(unit) else least}-{most})"
    elif least != most:
        text += f"\n± {_shown(key, stdev(found))}"
    return text if len(found) == len(row.costs) else f"{text}, {len(found)} of {len(row.costs)}"


def _shown(key: str, value: float) -> str:
    if key.startswith("bytes"):
        return decimal(int(value))
    if key.startswith("seconds"):
        return duration(value)
    if key.startswith(VALUES):
        return show_metric(key.partition("_")[2], value)
    return f"{value:.1f}".removesuffix(".0")


def as_csv(table: Table) -> str:
    """Return a row for every run, and rows of each line's mean, std, min, max and count.

    The column "row" says which. The mean and the others, the sample standard deviation among them,
    are of those runs that have a value, and "count" is how many these are.
    """
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    keys = list(table[0].costs[0])
    writer.writerow(["run", "row", "runs", "status", "seed", "folder", *keys])
    for row in table:
        line = row.line
        for run, cost in zip(line.runs, row.costs, strict=True):
            about = [line.name, "run", 1, line.status, run.config.get(SEED), run.folder]
            writer.writerow([*about, *cost.values()])
        for name, statistic in STATISTICS.items():
            found = [row.values(key) for key in keys]
            about = [line.name, name, len(row.costs), line.status, "", ""]
            none = 0 if name == "count" else ""
            writer.writerow([*about, *(statistic(values) if values else none for values in found)])
    return text.getvalue()
