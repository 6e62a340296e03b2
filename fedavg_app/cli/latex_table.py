"""Comparisons as a table for LaTeX: a number a cell, with its unit in the heading."""

import re
from collections.abc import Sequence
from math import floor, log10
from statistics import fmean, stdev
from typing import NamedTuple

from fedavg_app.cli.comparison_table import VALUES, Row, Spread, Table, heading
from fedavg_app.results.comparison import TO_TARGET
from fedavg_app.results.comparison_lines import SEED
from tasks.objective import ACCURACY, LOSS

# What LaTeX reads as commands.
LATEX = {character: f"\\{character}" for character in "&%$#_{}"} | {
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}",
}  # fmt: skip
BYTES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))
CLOCKS = {"seconds": "wall clock", "seconds_link": "link", "seconds_virtual": "virtual clock"}
MINUTE = 60.0
NONE = "--"
# A number, maybe with its standard deviation.
NUMBER = re.compile(r"(-?)(\d+)(?:\.(\d+))?(?: \\pm ([\d.]+))?")


class Column(NamedTuple):
    """A column: its kind in the preamble of the tabular, its heading, and a text for every row."""

    kind: str
    heading: str
    cells: list[str]


def as_latex(
    table: Table, spread: Spread, target: float | None = None, *, siunitx: bool = False
) -> str:
    r"""Return a tabular of the package booktabs.

    Final and best values are those of whole runs; rounds, bytes and minutes (on the last clock of
    the table) are of whole runs, too, or up to the target if there is one: then means are over the
    runs that reached it, and if not all did, a column says how many.

    Args:
        table: The rows.
        spread: What stands beside means that are of different values.
        target: The value up to which the table counts; None for whole runs.
        siunitx: Whether numbers are for siunitx's columns S, aligned at the decimal point.
    """
    all_keys = list(table[0].costs[0])
    name = next(key for key in all_keys if key.startswith(VALUES)).partition("_")[2]
    spent = ["rounds", "bytes_up", "bytes_down", [key for key in all_keys if key in CLOCKS][-1]]
    if target is not None:
        spent = [key + TO_TARGET for key in spent]
    units = {"bytes": _bytes_unit(table, spent), "seconds": (MINUTE, "min")}

    def measured(key: str) -> Column:
        scale, unit = units.get(key.partition("_")[0], (1.0, ""))
        cells = [_number(key, row, scale, spread) for row in table]
        what = CLOCKS.get(key.removesuffix(TO_TARGET), heading(key))
        shown = [_shown(cell, siunitx=siunitx) for cell in cells]
        kind = _siunitx_column(cells) if siunitx else "r"
        return Column(kind, f"{what} ({unit})" if unit else what, shown)

    about = _about(table, target)
    columns = [*about, *map(measured, [f"final_{name}", f"best_{name}", *spent])]
    above = []
    if target is not None:
        at, what = len(about) + 1, f"to {_escaped(name)} {target:g}"
        above = [
            rf"{'& ' * (at - 1)}\multicolumn{{2}}{{c}}{{whole run}}"
            rf" & \multicolumn{{4}}{{c}}{{{what}}} \\",
            rf"\cmidrule(lr){{{at}-{at + 1}}} \cmidrule(lr){{{at + 2}-{at + 5}}}",
        ]
    says = {"std": "mean and sample standard deviation", "range": "mean [least, largest]"}
    lines = [
        r"% \usepackage{booktabs}" + r", \usepackage{siunitx}" * siunitx,
        *([f"% {says[spread]} of a row's runs where these differ"] if spread in says else []),
        rf"\begin{{tabular}}{{{''.join(column.kind for column in columns)}}}",
        r"\toprule",
        *above,
        " & ".join(f"{{{column.heading}}}" for column in columns) + r" \\",
        r"\midrule",
        *(" & ".join(c.cells[at] for c in columns) + r" \\" for at in range(len(table))),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


def _about(table: Table, target: float | None) -> list[Column]:
    """Return the columns that say what the rows are and of how many runs."""
    seeds = [{run.config.get(SEED) for run in row.line.runs} for row in table]
    by_seed = all(len(own) == len(row.costs) for own, row in zip(seeds, table, strict=True))
    columns = [
        Column("l", "", [_escaped(row.line.name) for row in table]),
        Column("r", "seeds" if by_seed else "runs", [str(len(row.costs)) for row in table]),
        Column("l", "status", [_escaped(row.line.status) for row in table]),
    ]
    if target is not None:
        reached = [len(row.values("rounds" + TO_TARGET)) for row in table]
        if any(own < len(row.costs) for own, row in zip(reached, table, strict=True)):
            columns.append(Column("r", "reached", list(map(str, reached))))
    return columns


def _shown(cell: str, *, siunitx: bool) -> str:
    if not NUMBER.fullmatch(cell):
        return f"{{{cell}}}"
    return cell if siunitx else f"${cell}$"


def _bytes_unit(table: Table, keys: Sequence[str]) -> tuple[float, str]:
    """Return the largest unit in which no mean is below 1: up and down compare at a glance."""
    found = [row.values(key) for key in keys if key.startswith("bytes") for row in table]
    least = min((fmean(values) for values in found if any(values)), default=0.0)
    return next((unit for unit in BYTES if unit[0] <= least), BYTES[-1])


def _number(key: str, row: Row, scale: float, spread: Spread) -> str:
    found = [value / scale for value in row.values(key)]
    if not found or (len(found) < len(row.costs) and not key.endswith(TO_TARGET)):
        return NONE
    mean, deviation = fmean(found), stdev(found) if len(found) > 1 else 0.0
    digits = _decimals(key, mean, whole=all(value.is_integer() for value in (mean, deviation)))
    if deviation:  # a digit of it, if two decimals more show one
        digits = max(digits, min(-floor(log10(deviation)), digits + 2))
    middle, beside, least, most = (
        f"{value:.{digits}f}" for value in (mean, deviation, min(found), max(found))
    )
    if spread == "range" and least != most:
        return f"{middle} [{least}, {most}]"
    return rf"{middle} \pm {beside}" if spread == "std" and float(beside) else middle


def _decimals(key: str, mean: float, *, whole: bool) -> int:
    """Return the decimals of a column's numbers: three digits, four of values of the objective."""
    if key.startswith("rounds"):
        return 0 if whole else 1
    if key.startswith(VALUES) and key.partition("_")[2] in (ACCURACY, LOSS):
        return 4
    before = floor(log10(abs(mean))) + 1 if mean else 3
    return max((4 if key.startswith(VALUES) else 3) - before, 0)


def _siunitx_column(cells: Sequence[str]) -> str:
    """Return the column S that has room for the numbers, and for their standard deviations."""
    found = [match.groups("") for cell in cells if (match := NUMBER.fullmatch(cell))]
    if not found:
        return "c"
    signs, wholes, decimals, deviations = zip(*found, strict=True)
    whole, decimal = (max(map(len, parts)) for parts in (wholes, decimals))
    room = max(len(text.replace(".", "").lstrip("0")) for text in deviations)
    uncertainty = f"({room})" if room else ""
    return f"S[table-format={max(signs)}{whole}.{decimal}{uncertainty}]"


def _escaped(text: str) -> str:
    return "".join(LATEX.get(character, character) for character in text)
