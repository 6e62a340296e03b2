"""Comparisons as tables on the terminal and as CSV."""

import re
from collections.abc import Iterator

import rich.table
from pandas import DataFrame, Series, concat
from rich.console import Console
from rich.filesize import decimal

from fedavg_app.budget import duration
from fedavg_app.cli.comparison import TO_TARGET, Comparison
from fedavg_app.cli.options import Spread
from tasks.objective import ACCURACY, show_metric

# The headings of columns whose keys, with the unit, are for programs.
HEADINGS = {
    "bytes_up": "up", "bytes_down": "down", "seconds_link": "link", "seconds_virtual": "virtual",
}  # fmt: skip
# The beginnings of the names of columns with values of the objective.
VALUES = ("best_", "final_")
# The width of a terminal on which no table is folded, and the least width of a run's name.
WIDE, LEAST_NAME = 1000, 10
# The dash of a range.
RANGE = re.compile(r"(?<=\d)-(?=\d)")


def heading(key: str) -> str:
    """Return the heading of a column."""
    key = key.removesuffix(TO_TARGET)
    return key.partition("_")[0] if key.startswith(VALUES) else HEADINGS.get(key, key)


def rows_of(compared: Comparison, spread: Spread) -> Iterator[tuple[str, DataFrame]]:
    """Yield the name of every row of a table, and the numbers of its runs."""
    for _, own in compared.numbers.groupby("line", sort=False):
        name = own["run"].iloc[0]
        if spread != "runs":
            yield name, own
            continue
        for at, seed in own["seed"].sort_values(kind="stable").items():
            yield f"{name}, seed {seed}", own.loc[[at]]


def print_tables(compared: Comparison, spread: Spread) -> None:
    """Print what whole runs took, and what it took up to the target; less on a narrow terminal."""
    name = compared.objective.name
    _print(compared, spread, "whole runs" if name == ACCURACY else f"whole runs, by {name}")
    on_clients = [run.on_clients for run in compared.runs]
    for line in compared.numbers["run"][on_clients].unique():
        text = f"{line}: the {name} is the clients' own, who keep local-arrays"
        Console(highlight=False, markup=False, soft_wrap=True).print(text)
    if compared.target is not None:
        _print(compared, spread, f"to {name} {compared.target:g}", to_target=True)


def _print(compared: Comparison, spread: Spread, title: str, *, to_target: bool = False) -> None:
    console = Console(highlight=False, markup=False)
    longest = max(len(name) for name, _ in rows_of(compared, spread))
    keys = [key for key in compared.keys if key.endswith(TO_TARGET) == to_target]
    for narrow in (False, True):
        if narrow:
            keys = [key for key in keys if key[:8] != "rejected" or compared.numbers[key].any()]
        shown = _on_terminal(compared, spread, title, keys, narrow=narrow)
        whole = console.measure(shown, options=console.options.update(width=WIDE)).maximum
        if whole - longest + min(longest, LEAST_NAME) <= console.width:
            break  # only names are folded
    else:
        for column in shown.columns:
            column.no_wrap = False
    console.print(shown)


def _on_terminal(
    compared: Comparison, spread: Spread, title: str, keys: list[str], *, narrow: bool
) -> rich.table.Table:
    """Return a table; a narrow table has no room around cells, and breaks ranges."""
    shown = rich.table.Table(title=title, title_justify="left", padding=(0, 0 if narrow else 1))
    shown.add_column("run", overflow="fold")
    shown.add_column("status", overflow="fold", no_wrap=True)
    for key in keys:
        shown.add_column(heading(key), justify="right", overflow="fold", no_wrap=True)
    space = "\n" if narrow else " "
    for name, own in rows_of(compared, spread):
        number = f"{len(own)}{space}" if len(own) > 1 else ""
        texts = [_cell(key, own[key], spread) for key in keys]
        if narrow:
            texts = [RANGE.sub("-\n", text).replace("± ", "±") for text in texts]
        shown.add_row(name, f"{number}{own['status'].iloc[0]}", *texts)
    return shown


def _cell(key: str, values: Series, spread: Spread) -> str:
    found = values.dropna()
    if found.empty:
        return "-"
    text, least, most = (_shown(key, value) for value in (found.mean(), found.min(), found.max()))
    if least != most and spread == "range":
        number, _, unit = least.partition(" ")
        text += f"\n({number if most.endswith(unit) else least}-{most})"
    elif least != most:
        text += f"\n± {_shown(key, found.std())}"
    return text if len(found) == len(values) else f"{text}, {len(found)} of {len(values)}"


def _shown(key: str, value: float) -> str:
    if key.startswith("bytes"):
        return decimal(int(value))
    if key.startswith("seconds"):
        return duration(value)
    if key.startswith(VALUES):
        return show_metric(key.partition("_")[2].removesuffix(TO_TARGET), value)
    return f"{value:.1f}".removesuffix(".0")


def as_csv(compared: Comparison) -> str:
    """Return a row for every run, and rows of each line's mean, std, min, max and count.

    The column "row" says which. The mean and the others, the sample standard deviation among them,
    are of those runs that have a value, and "count" is how many these are.
    """
    parts = []
    for _, own in compared.numbers.groupby("line", sort=False):
        statistics = own[compared.keys].astype(float).agg(["mean", "std", "min", "max", "count"])
        about = {"run": own["run"].iloc[0], "status": own["status"].iloc[0], "runs": len(own)}
        parts.append(own.assign(row="run", runs=1))
        parts.append(statistics.assign(row=statistics.index, **about))
    table = concat(parts)[["run", "row", "runs", "status", "seed", "folder", *compared.keys]]
    return str(table.to_csv(index=False, float_format=lambda value: str(value).removesuffix(".0")))
