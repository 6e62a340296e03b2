"""Comparisons as tables: on the terminal, as CSV, and as LaTeX."""

import csv
import re
from collections.abc import Mapping, Sequence
from io import StringIO
from statistics import fmean
from typing import NamedTuple

import rich.table
from rich.filesize import decimal

from fedavg_app.links.link import duration
from fedavg_app.results.comparison import Cost
from tasks.objective import show_metric

# What LaTeX reads as commands.
LATEX = {character: f"\\{character}" for character in "&%$#_{}"} | {
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}",
}  # fmt: skip


# The headings of columns whose keys, with the unit, are for programs.
HEADINGS = {
    "bytes_up": "up", "bytes_down": "down", "seconds_link": "link", "seconds_virtual": "virtual",
}  # fmt: skip
# How the keys of columns begin that have values of the objective.
VALUES = ("best_", "final_")
# The dash of a range.
RANGE = re.compile(r"(?<=\d)-(?=\d)")


class Row(NamedTuple):
    """A row's runs: the status that all of them have, and what each took."""

    status: str
    costs: Sequence[Cost]


# By the rows' names.
Table = Mapping[str, Row]


def columns(table: Table) -> dict[str, str]:
    """Return the heading of every column by its key."""
    keys = next(iter(table.values())).costs[0]
    return {
        key: key.partition("_")[0] if key.startswith(VALUES) else HEADINGS.get(key, key)
        for key in keys
    }


def cells(row: Row, separator: str = " ") -> list[str]:
    """Return the cells of a row: the status, how many runs have it, and `columns`.

    Each of these is a mean with its range, and how many runs have a value.
    """
    costs = row.costs
    status = f"{len(costs)} {row.status}" if len(costs) > 1 else row.status
    values = (_cell(key, [cost[key] for cost in costs], separator) for key in costs[0])
    return [status, *values]


def _cell(key: str, values: Sequence[float | None], separator: str) -> str:
    found = [value for value in values if value is not None]
    if not found:
        return "-"
    text, least, most = (_shown(key, one) for one in (fmean(found), min(found), max(found)))
    if least != most:
        number, _, unit = least.partition(" ")
        text += f"{separator}({number if most.endswith(unit) else least}-{most})"
    return text if len(found) == len(values) else f"{text}, {len(found)} of {len(values)}"


def _shown(key: str, value: float) -> str:
    if key.startswith("bytes"):
        return decimal(int(value))
    if key.startswith("seconds"):
        return duration(value)
    if key.startswith(VALUES):
        return show_metric(key.partition("_")[2], value)
    return f"{value:.1f}".removesuffix(".0")


def on_terminal(title: str, table: Table, *, narrow: bool = False) -> rich.table.Table:
    """Return what rich prints; a narrow one has no room around cells, and breaks ranges."""
    shown = rich.table.Table(title=title, title_justify="left", padding=(0, 0 if narrow else 1))
    shown.add_column("run", overflow="fold")
    shown.add_column("status", overflow="fold")
    for heading in columns(table).values():
        shown.add_column(heading, justify="right", overflow="fold")
    for name, row in table.items():
        texts = cells(row, "\n")
        shown.add_row(name, *(RANGE.sub("-\n", one) for one in texts) if narrow else texts)
    return shown


def as_csv(table: Table) -> str:
    """Return a line for every row: name, runs, status, and mean, least and largest values."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    parts = ("", "_min", "_max")
    keys = list(columns(table))
    writer.writerow(["run", "runs", "status", *(key + part for key in keys for part in parts)])
    for name, row in table.items():
        numbers: list[float | str] = []
        for key in keys:
            found = [value for cost in row.costs if (value := cost[key]) is not None]
            numbers += [fmean(found), min(found), max(found)] if found else [""] * len(parts)
        writer.writerow([name, len(row.costs), row.status, *numbers])
    return text.getvalue()


def as_latex(table: Table) -> str:
    r"""Return a tabular of the package booktabs, as the terminal shows it."""
    headings = ["status", *columns(table).values()]
    lines = [
        rf"\begin{{tabular}}{{l{'r' * len(headings)}}}",
        r"\toprule",
        _latex_line(["run", *headings]),
        r"\midrule",
        *(_latex_line([name, *cells(row)]) for name, row in table.items()),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


def _latex_line(cells: Sequence[str]) -> str:
    escaped = ("".join(LATEX.get(one, one) for one in cell) for cell in cells)
    return " & ".join(escaped) + r" \\"
