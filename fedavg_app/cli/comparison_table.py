"""Comparisons as tables: on the terminal, as CSV, and as LaTeX."""

import csv
from collections.abc import Mapping, Sequence
from io import StringIO
from statistics import fmean

from rich.filesize import decimal

from fedavg_app.links.link import duration
from fedavg_app.results.comparison import Cost

# What LaTeX reads as commands.
LATEX = {character: f"\\{character}" for character in "&%$#_{}"} | {
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}",
}  # fmt: skip


# The headings of columns whose keys, with the unit, are for programs.
HEADINGS = {
    "best_accuracy": "best", "bytes_up": "up", "bytes_down": "down",
    "seconds_link": "link", "seconds_virtual": "virtual",
}  # fmt: skip
# By row, what each of its runs took.
Table = Mapping[str, Sequence[Cost]]


def columns(table: Table) -> dict[str, str]:
    """Return the heading of every column by its key."""
    return {key: HEADINGS.get(key, key) for key in next(iter(table.values()))[0]}


def cells(costs: Sequence[Cost], separator: str = " ") -> list[str]:
    """Return the cells of a row: each a mean with its range, and how many runs have a value."""
    return [_cell(key, [cost[key] for cost in costs], separator) for key in costs[0]]


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
    return f"{value:.4f}" if "accuracy" in key else f"{value:.1f}".removesuffix(".0")


def as_csv(table: Table) -> str:
    """Return a line for every row: its name, its runs, and mean, least and largest values."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    parts = ("", "_min", "_max")
    writer.writerow(["run", "runs", *(key + part for key in columns(table) for part in parts)])
    for row, costs in table.items():
        numbers: list[float | str] = []
        for key in costs[0]:
            found = [value for cost in costs if (value := cost[key]) is not None]
            numbers += [fmean(found), min(found), max(found)] if found else [""] * len(parts)
        writer.writerow([row, len(costs), *numbers])
    return text.getvalue()


def as_latex(table: Table) -> str:
    r"""Return a tabular of the package booktabs, as the terminal shows it."""
    headings = columns(table).values()
    lines = [
        rf"\begin{{tabular}}{{l{'r' * len(headings)}}}",
        r"\toprule",
        _latex_line(["run", *headings]),
        r"\midrule",
        *(_latex_line([row, *cells(costs)]) for row, costs in table.items()),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


def _latex_line(cells: Sequence[str]) -> str:
    escaped = ("".join(LATEX.get(one, one) for one in cell) for cell in cells)
    return " & ".join(escaped) + r" \\"
