"""Comparisons as tables: on the terminal, as CSV, and as LaTeX."""

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from statistics import fmean

from rich.filesize import decimal

from fedavg_app.links.link import duration
from fedavg_app.results.comparison import Cost

# What LaTeX reads as commands.
LATEX = {character: f"\\{character}" for character in "&%$#_{}"} | {
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}",
}  # fmt: skip


@dataclass(frozen=True)
class Column:
    """A column of numbers.

    Attributes:
        heading: For people.
        key: For programs, with the unit.
        values: By row, those of its runs; None for a run that did not come so far.
    """

    heading: str
    key: str
    values: Mapping[str, Sequence[float | None]]

    def shown(self, value: float) -> str:
        """Return a value as text."""
        if self.key.startswith("bytes"):
            return decimal(int(value))
        if self.key.startswith("seconds"):
            return duration(value)
        return f"{value:.4f}" if "accuracy" in self.key else f"{value:.1f}".removesuffix(".0")

    def cell(self, row: str, separator: str = " ") -> str:
        """Return a row's mean with its range, and how many of the runs have a value."""
        values = self.values[row]
        found = [value for value in values if value is not None]
        if not found:
            return "-"
        text, least, most = map(self.shown, (fmean(found), min(found), max(found)))
        if least != most:
            number, _, unit = least.partition(" ")
            text += f"{separator}({number if most.endswith(unit) else least}-{most})"
        return text if len(found) == len(values) else f"{text}, {len(found)} of {len(values)}"


def columns(
    costs: Mapping[str, Sequence[Cost | None]], clocks: Iterable[str], *, to_target: bool
) -> list[Column]:
    """Return the columns for these costs by row; the accuracy only where it is not the target."""

    def column(heading: str, key: str, value: str, clock: str = "") -> Column:
        def of(cost: Cost | None) -> float | None:
            if cost is None:
                return None
            found: float | None = cost.seconds[clock] if clock else getattr(cost, value)
            return found

        return Column(heading, key, {row: [*map(of, own)] for row, own in costs.items()})

    return [
        column("rounds", "rounds", "rounds"),
        *([] if to_target else [column("best", "best_accuracy", "accuracy")]),
        column("up", "bytes_up", "bytes_up"),
        column("down", "bytes_down", "bytes_down"),
        *(
            column(clock, "seconds" if clock == "seconds" else f"seconds_{clock}", "", clock)
            for clock in clocks
        ),
    ]


def as_csv(rows: Sequence[str], table: Sequence[Column]) -> str:
    """Return a line for every row: its name, its runs, and mean, least and largest values."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    parts = ("", "_min", "_max")
    writer.writerow(["run", "runs", *(one.key + part for one in table for part in parts)])
    for row in rows:
        numbers: list[float | str] = []
        for one in table:
            found = [value for value in one.values[row] if value is not None]
            numbers += [fmean(found), min(found), max(found)] if found else [""] * len(parts)
        writer.writerow([row, len(table[0].values[row]), *numbers])
    return text.getvalue()


def as_latex(rows: Sequence[str], table: Sequence[Column]) -> str:
    r"""Return a tabular of the package booktabs, as the terminal shows it."""
    lines = [
        rf"\begin{{tabular}}{{l{'r' * len(table)}}}",
        r"\toprule",
        _latex_line(["run", *(one.heading for one in table)]),
        r"\midrule",
        *(_latex_line([row, *(one.cell(row) for one in table)]) for row in rows),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


def _latex_line(cells: Sequence[str]) -> str:
    escaped = ("".join(LATEX.get(one, one) for one in cell) for cell in cells)
    return " & ".join(escaped) + r" \\"
