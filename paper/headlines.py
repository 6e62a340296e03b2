"""The papers' headline claims next to ours: the first table of the page."""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from paper.cell_text import entry, number, seeds, spread, times
from paper.experiments import Measure
from paper.tables import Result

HEADLINES = "headlines.toml"
# Within so much of the paper's value a claim counts as reproduced: relative, and for accuracies in
# [0, 1] absolute.
CLOSE, CLOSE_ACCURACY = 0.1, 0.01

Mark = Literal["better", "reproduced", "worse", "not reached", "not run", "not comparable"]
Table = Sequence[Sequence[Result]]


def headlines(path: Path, tables: Mapping[str, tuple[Measure, Table]]) -> list[dict[str, Any]]:
    """Return a file's claims next to ours, as text; none if there is no such file.

    A claim names a cell: experiment, row and column. "speedup" says that it is of the speed-up, not
    of the value; "paper" is the paper's value where it is of another model or of more iterations
    than ours, and so not to be compared.

    Args:
        path: The file.
        tables: What is measured, and the table, by the experiment's name.
    """
    if not path.is_file():
        return []
    cells = {
        (name, result.cell.row.name, result.cell.column.name): (result, first, measure)
        for name, (measure, table) in tables.items()
        for row in table
        for result, first in zip(row, table[0], strict=True)
    }
    return [
        _headline(claim, *cells[claim["experiment"], claim["row"], claim["column"]])
        for claim in tomllib.loads(path.read_text(encoding="utf-8"))["claims"]
    ]


def _headline(
    claim: dict[str, Any], result: Result, first: Result, measure: Measure
) -> dict[str, Any]:
    """Return the claim with ours; speed-ups are over ``first``."""
    speedup = claim.get("speedup", False)
    ours, theirs = result.value, result.paper
    if speedup:
        ours, theirs = result.speedup, result.paper_speedup
        shown, paper = times(ours), times(result.paper_speedup)
    else:
        shown, paper = "" if ours is None else number(ours, measure), entry(result.paper, measure)
    mark: Mark
    if ours is None:
        mark = "not reached" if result.done else "not run"
    elif "paper" in claim or isinstance(theirs, str | None):
        mark = "not comparable"
    else:
        mark = compare(ours, theirs, measure, speedup=speedup)
    return {
        "claim": claim,
        "paper": claim.get("paper", paper),
        "ours": shown,
        "spread": _spread(result, first, measure, speedup=speedup),
        "mark": mark,
    }


def compare(ours: float, paper: float, measure: Measure, *, speedup: bool = False) -> Mark:
    """Return how a value compares with the paper's."""
    if measure == "best-accuracy" and not speedup:
        gain, close = ours - paper, CLOSE_ACCURACY
    else:
        change = ours / paper - 1
        gain, close = change if speedup else -change, CLOSE
    if abs(round(gain, 3 if measure == "best-accuracy" else 2)) <= close:  # as the page shows it
        return "reproduced"
    return "better" if gain > 0 else "worse"


def _spread(result: Result, first: Result, measure: Measure, *, speedup: bool) -> str:
    """Return the range of the seeds, or how far the run came."""
    if result.value is None:
        accuracies = [run.record.summary["best-accuracy"] or 0.0 for run in result.done]
        rounds = [run.record.summary["rounds"] for run in result.done]
        text = f"best {100 * max(accuracies):.1f} % in {max(rounds):,} rounds" if rounds else ""
        some = any(run.value is not None for run in result.best)
        return f"{text}; {seeds(result)}: {spread(result, measure)}" if some else text
    if speedup and seeds(first) != seeds(result):
        return f"{seeds(first)} ({first.cell.row.name}) and {seeds(result)}"
    if speedup or len(result.best) == 1:
        return seeds(result)
    return f"{seeds(result)}: {spread(result, measure)}"
