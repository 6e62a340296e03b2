"""Comparisons as tables on the terminal and as CSV."""

import re
from collections.abc import Callable, Iterator, Sequence
from math import nan

import rich.table
from pandas import DataFrame, Series, concat
from rich.console import Console
from rich.filesize import decimal

from fedavg_app.budget import duration
from fedavg_app.cli.client_statistics import OF_CLIENTS
from fedavg_app.cli.comparison import TO_TARGET, VALIDATION, Comparison
from fedavg_app.cli.comparison_pairs import Pairs, interval
from fedavg_app.cli.options import Spread
from fedavg_app.results.finished_run import FINISHED
from tasks.objective import ACCURACY, show_metric

# The headings of columns whose keys, with the unit, are for programs.
HEADINGS = {
    "bytes_up": "up", "bytes_down": "down", "seconds_link": "link", "seconds_virtual": "virtual",
}  # fmt: skip
# The beginnings of the names of columns with values of the objective.
VALUES = ("best_", "final_", f"{VALIDATION}_", OF_CLIENTS)
# What the best value is, by what its round was chosen on.
CHOSEN = {
    "test": "best on the test set",
    "validation": "best is the test {} in the round that is best on validation examples, by which "
    "the target goes, too",
    "clients": "the {} is the clients' own, who keep local-arrays",
}
# The width of a terminal on which no table is folded, and the least width of a run's name.
WIDE, LEAST_NAME = 1000, 10
# The dash of a range.
RANGE = re.compile(r"(?<=\d)-(?=\d)")


def heading(key: str) -> str:
    """Return the heading of a column."""
    key = key.removesuffix(TO_TARGET)
    return key.partition("_")[0] if key.startswith(VALUES) else HEADINGS.get(key, key)


def lines_of(numbers: DataFrame) -> Iterator[tuple[str, DataFrame]]:
    """Yield the name of every line, and the numbers of its runs."""
    for _, line in numbers.groupby("line", sort=False):
        yield line["run"].iloc[0], line


def rows_of(compared: Comparison, spread: Spread) -> Iterator[tuple[str, DataFrame]]:
    """Yield the name of every row of a table, and the numbers of its runs."""
    for name, line in lines_of(compared.numbers):
        if spread != "runs":
            yield name, line
            continue
        for at, seed in line["seed"].sort_values(kind="stable").items():
            yield f"{name}, seed {seed}", line.loc[[at]]


def print_tables(compared: Comparison, spread: Spread, pairs: Pairs | None = None) -> None:
    """Print what whole runs took, and what it took up to the target; less on a narrow terminal."""
    name = compared.objective.name
    rows = list(rows_of(compared, spread))

    def show(key: str, values: Series) -> str:
        return _cell(key, values, spread)

    whole = [key for key in compared.keys if not key.endswith(TO_TARGET)]
    _print("whole runs" if name == ACCURACY else f"whole runs, by {name}", rows, whole, show)
    kinds = compared.numbers.groupby("chosen_on", sort=False)["run"].unique()
    for kind, lines in kinds.items():
        whose = f"{'; '.join(lines)}: " if set(kinds.index) != {"test"} else ""
        text = whose + CHOSEN[str(kind)].format(name)
        Console(highlight=False, markup=False, soft_wrap=True).print(text)
    if compared.target is not None:
        until = [key for key in compared.keys if key.endswith(TO_TARGET)]
        _print(f"to {name} {compared.target:g}", rows, until, show)
    if pairs is not None:
        title = f"difference from {pairs.against}, with its 95 % interval"
        rows, keys = list(lines_of(pairs.numbers)), _columns_to_compare(compared)
        _print(title, rows, keys, _difference, runs="pairs")


def _print(
    title: str,
    rows: Sequence[tuple[str, DataFrame]],
    keys: list[str],
    show: Callable[[str, Series], str],
    runs: str = "runs",
) -> None:
    """Print a table; on a narrow terminal it has no room around cells, and breaks ranges."""
    console = Console(highlight=False, markup=False)
    longest = max(len(name) for name, _ in rows)
    for narrow in (False, True):
        if narrow:
            idle = [key for key in keys if not any(row[key].any() for _, row in rows)]
            keys = [key for key in keys if key[:8] != "rejected" or key not in idle]
        shown = rich.table.Table(title=title, title_justify="left", padding=(0, 0 if narrow else 1))
        shown.add_column("run", overflow="fold")
        about, space = about_rows(rows, runs), "\n" if narrow else " "
        if "status" in about:
            sizes = [f"{size}{space}" if size != "1" else "" for size in about.pop(runs)]
            about["status"] = list(map("".join, zip(sizes, about["status"], strict=True)))
        elif set(about.get("runs", ())) == {"1"}:
            about = {}
        for key in about:
            shown.add_column(key, overflow="fold", no_wrap=True)
        for key in keys:
            shown.add_column(heading(key), justify="right", overflow="fold", no_wrap=True)
        for place, (name, row) in enumerate(rows):
            texts = [show(key, row[key]) for key in keys]
            if narrow:
                texts = [RANGE.sub("-\n", text).replace("± ", "±") for text in texts]
                texts = [text.replace(" to ", " to\n") for text in texts]
            shown.add_row(name, *(column[place] for column in about.values()), *texts)
        whole = console.measure(shown, options=console.options.update(width=WIDE)).maximum
        if whole - longest + min(longest, LEAST_NAME) <= console.width:
            break  # only names are folded
    else:
        for column in shown.columns:
            column.no_wrap = False
    console.print(shown)


def about_rows(rows: Sequence[tuple[str, DataFrame]], runs: str) -> dict[str, list[str]]:
    """Return columns about rows: the number of runs, and their status if some did not finish."""
    columns = {runs: [str(len(row)) for _, row in rows]}
    statuses = [row["status"].iloc[0] for _, row in rows]
    return columns if set(statuses) <= {FINISHED} else {**columns, "status": statuses}


def _columns_to_compare(compared: Comparison) -> list[str]:
    """Return the columns of values, and of what it took up to the target if there is one."""
    return [
        key for key in compared.keys
        if key.startswith(VALUES) or key.endswith(TO_TARGET) == (compared.target is not None)
    ]  # fmt: skip


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


def _difference(key: str, values: Series) -> str:
    """Return the mean difference with its interval, or each of fewer than three differences."""
    found = values.dropna()
    if found.empty:
        return "-"
    apart = interval(found)
    if apart is None:
        return "\n".join(_signed(key, value) for value in found)
    low, high = (_signed(key, bound) for bound in apart)
    text = f"{_signed(key, found.mean())}\n({low} to {high})"
    return text if len(found) == len(values) else f"{text}, {len(found)} of {len(values)}"


def _signed(key: str, value: float) -> str:
    text = _shown(key, abs(value))
    return text if not value else f"{'-' if value < 0 else '+'}{text}"


def _shown(key: str, value: float) -> str:
    if key.startswith("bytes"):
        return decimal(int(value))
    if key.startswith("seconds"):
        return duration(value)
    if key.startswith(VALUES):
        return show_metric(key.partition("_")[2].removesuffix(TO_TARGET), value)
    return f"{value:.1f}".removesuffix(".0")


def as_csv(compared: Sequence[tuple[Comparison, Pairs | None]]) -> str:
    """Return a row for every run, and rows of each line's mean, std, min, max and count.

    The column "row" says which. The mean and the others, the sample standard deviation among them,
    are of those runs that have a value, and "count" is how many these are. For every pair there is
    a row "difference", and for every line of pairs rows with the mean, the ends of its interval,
    and the count.
    """
    parts, keys = list[DataFrame](), dict[str, None]()
    for each, pairs in compared:
        keys |= dict.fromkeys(each.keys)
        for _, line in lines_of(each.numbers):
            parts.append(line.assign(row="run", runs=1))
            numbers = line[each.keys].astype(float)
            parts.append(_about(line, numbers.agg(["mean", "std", "min", "max", "count"])))
        for _, line in lines_of(pairs.numbers) if pairs else ():
            parts.append(line.assign(row="difference", runs=1))
            numbers = line[each.keys].astype(float)
            ends = {key: interval(numbers[key]) or (nan, nan) for key in each.keys}
            statistics = concat([numbers.agg(["mean", "count"]), DataFrame(ends, ["low", "high"])])
            statistics = statistics.loc[["mean", "low", "high", "count"]]
            parts.append(_about(line, statistics.rename(index="difference {}".format)))
    table = concat(parts)[["run", "row", "runs", "status", "seed", "folder", "chosen_on", *keys]]
    return str(table.to_csv(index=False, float_format=lambda value: str(value).removesuffix(".0")))


def _about(line: DataFrame, statistics: DataFrame) -> DataFrame:
    about = {key: line[key].iloc[0] for key in ("run", "status", "chosen_on")} | {"runs": len(line)}
    return statistics.assign(row=statistics.index, **about)
