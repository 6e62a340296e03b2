"""Comparisons as a table for LaTeX: a number a cell, with its unit in the heading."""

import re
from collections.abc import Callable, Mapping, Sequence
from math import floor, log10
from typing import Any

import numpy as np
from pandas import DataFrame, Series

from fedavg_app.budget import BYTES, SECONDS
from fedavg_app.cli.client_statistics import OF_CLIENTS
from fedavg_app.cli.comparison import TO_TARGET, Comparison, largest_unit
from fedavg_app.cli.comparison_pairs import LEAST_PAIRS, Pairs, interval
from fedavg_app.cli.comparison_table import CHOSEN, VALUES, about_rows, heading, lines_of, rows_of
from fedavg_app.cli.options import Spread
from tasks.objective import ACCURACY, LOSS

CLOCKS = {"seconds": "wall clock", "seconds_link": "link", "seconds_virtual": "virtual clock"}
SAYS = {"std": "mean and sample standard deviation", "range": "mean [least, largest]"}
NONE = "--"
# A number, maybe with its standard deviation.
NUMBER = re.compile(r"(-?)(\d+)(?:\.(\d+))?(?: \\pm ([\d.]+))?")


def as_latex(
    compared: Comparison, spread: Spread, pairs: Pairs | None = None, *, siunitx: bool = False
) -> str:
    r"""Return a tabular of the package booktabs, with the best mean of a column in bold.

    Final and best values are those of whole runs; rounds, bytes and minutes (on the last clock of
    the comparison) are of whole runs, too, or up to the target if there is one: then means are over
    the runs that reached it, and if not all did, a column says how many. The name of a line may
    have math, as in "STC, $p = 1/25$". With pairs, a second tabular has the mean differences.

    Args:
        compared: The runs.
        spread: What stands beside means that are of different values.
        pairs: How runs differ from those of a line.
        siunitx: Whether numbers are for siunitx's columns S, aligned at the decimal point.
    """
    rows = list(rows_of(compared, spread))
    by_seed = all(row["seed"].is_unique for _, row in rows)
    about = about_rows(rows, "seeds" if by_seed else "runs")
    if compared.target is not None:
        reached = [str(row["rounds" + TO_TARGET].count()) for _, row in rows]
        if reached != [str(len(row)) for _, row in rows]:
            about["reached"] = reached

    def show(key: str, values: Series) -> str:
        return _number(key, values, spread)

    says = f"% {SAYS[spread]} of a row's runs where these differ\n" if spread in SAYS else ""
    package = r", \usepackage[detect-weight]{siunitx}" if siunitx else ""
    text = _tabular(compared, rows, about, show, siunitx=siunitx, bold=True)
    for kind in compared.numbers["chosen_on"].unique():
        says += f"% {CHOSEN[kind].format(compared.objective.name)}\n"
    text = rf"% \usepackage{{booktabs}}{package}" + f"\n{says}{text}"
    if pairs is not None:
        rows = list(lines_of(pairs.numbers))
        about = about_rows(rows, "pairs")
        text += (
            f"\n% difference from {pairs.against}: mean [95 % interval by Student's t], or each of "
            f"fewer than {LEAST_PAIRS}\n"
            f"{_tabular(compared, rows, about, _difference, siunitx=siunitx)}"
        )
    return text


def _tabular(
    compared: Comparison,
    rows: Sequence[tuple[str, DataFrame]],
    about: Mapping[str, list[str]],
    show: Callable[[str, Series], str],
    *,
    siunitx: bool,
    bold: bool = False,
) -> str:
    objective, target = compared.objective, compared.target
    end = "" if target is None else TO_TARGET
    values = [f"final_{objective.name}", f"best_{objective.name}"]
    values += [key for key in compared.keys if key.startswith(OF_CLIENTS)]
    spent = [key + end for key in ("rounds", "bytes_up", "bytes_down", compared.clock)]
    units = {"bytes": _bytes_unit([row[key].abs() for key in spent[1:3] for _, row in rows])}
    units["seconds"] = "min", SECONDS["min"]
    table = DataFrame({("", ""): [name for name, _ in rows]})
    for head, texts in about.items():
        table["", head] = texts
    kinds = ["l", *("l" if head == "status" else "r" for head in about)]
    none = [False] * len(rows)
    best = [none] * len(kinds)
    for key in [*values, *spent]:
        unit, scale = units.get(key.partition("_")[0], ("", 1.0))
        numbers = [row[key] / scale for _, row in rows]
        cells = [show(key, row) for row in numbers]
        what = CLOCKS.get(key.removesuffix(TO_TARGET), heading(key))
        group = "whole run" if key in values else f"to {objective.name} {target:g}" if end else ""
        table[group if end else "", f"{what} ({unit})" if unit else what] = [
            _shown(cell, siunitx=siunitx) for cell in cells
        ]
        kinds.append(_siunitx_column(cells) if siunitx else "r")
        higher = key in values and objective.higher_is_better
        counts = bold and (key in values or end)
        best.append(_best(numbers, higher=higher) if counts else none)
    if target is None:
        table.columns = table.columns.droplevel(0)
    marks = np.where(np.transpose(best), "bfseries:--nowrap;" if siunitx else "textbf:--rwrap;", "")
    style = table.style.hide(axis="index").apply(lambda _: marks, axis=None)
    style.format(escape="latex-math", subset=[table.columns[0]])
    style.format_index(escape="latex", axis="columns")
    return str(
        style.to_latex(
            column_format="".join(kinds), hrules=True, siunitx=siunitx, multicol_align="c"
        )
    )


def _best(rows: Sequence[Series], *, higher: bool) -> list[bool]:
    """Return which rows have the best mean, of two or more of which no run lacks a value."""
    means = Series([row.mean(skipna=False) for row in rows])
    best = means.max() if higher else means.min()
    return list((means == best) & (means.count() > 1))


def _bytes_unit(found: Sequence[Series]) -> tuple[str, float]:
    """Return the largest unit in which no mean is below 1: up and down compare at a glance."""
    means = [values.mean() for values in found if values.any()]
    return largest_unit(BYTES, min(means, default=0.0))


def _number(key: str, values: Series, spread: Spread) -> str:
    found = values.dropna()
    if found.empty or (len(found) < len(values) and not key.endswith(TO_TARGET)):
        return NONE
    mean, deviation = found.mean(), found.std() if len(found) > 1 else 0.0
    digits = _digits(key, mean, deviation)
    middle, beside, least, most = (
        f"{value:.{digits}f}" for value in (mean, deviation, found.min(), found.max())
    )
    if spread == "range" and least != most:
        return f"{middle} [{least}, {most}]"
    return rf"{middle} \pm {beside}" if spread == "std" and float(beside) else middle


def _difference(key: str, values: Series) -> str:
    found = values.dropna()
    if found.empty:
        return NONE
    apart = interval(found)
    digits = _digits(key, found.mean(), found.std() if len(found) > 1 else 0.0)
    if apart is None:
        return ", ".join(f"{value:.{digits}f}" for value in found)
    low, high = (f"{bound:.{digits}f}" for bound in apart)
    text = f"{found.mean():.{digits}f} [{low}, {high}]"
    return text if len(found) == len(values) else f"{text} of {len(found)}"


def _digits(key: str, mean: float, deviation: float) -> int:
    """Return the decimals of a mean: a digit of the deviation, if two decimals more show one."""
    digits = _decimals(key, mean, whole=mean.is_integer() and float(deviation).is_integer())
    return max(digits, min(-floor(log10(deviation)), digits + 2)) if deviation else digits


def _decimals(key: str, mean: float, *, whole: bool) -> int:
    """Return the decimals of a column's numbers: three digits, four of values of the objective."""
    if key.startswith("rounds"):
        return 0 if whole else 1
    if key.startswith(VALUES) and key.partition("_")[2] in (ACCURACY, LOSS):
        return 4
    before = floor(log10(abs(mean))) + 1 if mean else 3
    return max((4 if key.startswith(VALUES) else 3) - before, 0)


def _shown(cell: str, *, siunitx: bool) -> str:
    if siunitx:
        return cell if NUMBER.fullmatch(cell) else f"{{{cell}}}"
    return re.sub(r"-(?=\d)|\\pm", r"$\g<0>$", cell)


def _siunitx_column(cells: Sequence[str]) -> str:
    """Return the column S that has room for the numbers, and for their standard deviations."""
    found: list[Any] = [match.groups("") for cell in cells if (match := NUMBER.fullmatch(cell))]
    if not found:
        return "c"
    signs, wholes, decimals, deviations = zip(*found, strict=True)
    whole, decimal = (max(map(len, parts)) for parts in (wholes, decimals))
    room = max(len(text.replace(".", "").lstrip("0")) for text in deviations)
    uncertainty = f"({room})" if room else ""
    return f"S[table-format={max(signs)}{whole}.{decimal}{uncertainty}]"
