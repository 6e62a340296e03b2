"""What a page says of a cell and of a run, and of the papers' claims, beside the numbers."""

import math
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedavg_app.budget import duration
from fedavg_app.sweep.planned_run import PlannedRun
from paper.experiments import Cell, Entry, Experiment, Measure
from paper.records import command_line
from paper.tables import Done, Result
from paper.text import NONE, SYMBOLS, entry, number, seeds, spread, times

# Within so much of the paper's value a claim counts as reproduced: relative, and for accuracies in
# [0, 1] absolute.
CLOSE, CLOSE_ACCURACY = 0.1, 0.01


def ours(result: Result, kind: Measure) -> tuple[str, str]:
    """Return what we have in a cell, and whether that is "measured", "missed" or "absent"."""
    if not result.best:
        return NONE, "absent"
    if result.value is not None:
        return number(result.value, kind), "measured"
    diverged = all(run.record.status == "diverged" for run in result.best)
    return "diverged" if diverged else "not reached", "missed"


def title(result: Result) -> str:
    """Return a cell's command, or that it was not run and how long it would take."""
    if result.best:
        return result.best[0].record.repeat
    hours = result.cell.hours
    estimate = f"; about {duration(3600 * hours)} a run" if hours else ""
    return f"not run: the machine time went to other cells{estimate}"


def notes(result: Result, kind: Measure) -> list[str]:
    """Return what has to be said of a cell in which something was run."""
    records, column = [run.record for run in result.best], result.cell.column
    if not records:
        return []
    found = [setting(result.cell, result.best[0].run)]
    if result.value is None:
        rounds = max(min(record.summary["rounds"], column.within or math.inf) for record in records)
        best = max(run.best for run in result.best)
        found.append(f"in {rounds:,} rounds, best {100 * best:.1f} %")
    elif any(record.status == "diverged" for record in records):
        found.append("diverged later")
    if len(records) > 1 and any(value is not None for value in result.values):
        found.append(f"{seeds(result.values)}: {spread(result.values, kind)}")
    if len(result.done) < len(result.cell.runs):
        found.append(f"{len(result.done)} of {len(result.cell.runs)} runs")
    return [note for note in found if note]


def setting(cell: Cell, run: PlannedRun) -> str:
    """Return the values that a run takes of its cell's grid, but for the seed."""
    values = run.config.model_dump(by_alias=True)
    return ", ".join(f"{SYMBOLS.get(key, key)} = {values[key]}" for key in cell.grid)


def anchor(experiment: Experiment, run: PlannedRun) -> str:
    """Return the name of a run's place on the page."""
    return f"{experiment.name}--{run.slug}"


def outcome(done: Done | None, kind: Measure) -> str:
    """Return what a run gave; None is a run that was not made."""
    if done is None:
        return "not run"
    value = "not reached" if done.value is None else number(done.value, kind)
    return value + (", diverged" if done.record.status == "diverged" else "")


def command(run: PlannedRun, done: Done | None) -> str:
    """Return a run's command: the one that made it, or would make it."""
    return done.record.repeat if done else command_line(run.config)


def headlines(
    path: Path, tables: Mapping[str, tuple[Measure, Sequence[Sequence[Result]]]]
) -> list[dict[str, Any]]:
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
        (name, result.cell.row.name, result.cell.column.name): (result, first, kind)
        for name, (kind, table) in tables.items()
        for row in table
        for result, first in zip(row, table[0], strict=True)
    }
    return [
        _headline(claim, *cells[claim["experiment"], claim["row"], claim["column"]])
        for claim in tomllib.loads(path.read_text(encoding="utf-8"))["claims"]
    ]


def _headline(
    claim: dict[str, Any], result: Result, first: Result, kind: Measure
) -> dict[str, Any]:
    """Return the claim with ours; speed-ups are over ``first``."""
    speedup, own = claim.get("speedup", False), seeds(result.values)
    theirs: Entry | None
    if speedup:
        value, theirs = result.speedup, result.paper_speedup
        shown, paper, apart = times(value), times(result.paper_speedup), own
        if seeds(first.values) != own:
            apart = f"{seeds(first.values)} ({first.cell.row.name}) and {own}"
    else:
        value, theirs = result.value, result.cell.paper
        shown, paper = "" if value is None else number(value, kind), entry(theirs, kind)
        some = value is not None and len(result.best) > 1
        apart = f"{own}: {spread(result.values, kind)}" if some else own
    if result.value is None:
        apart = _how_far(result, kind)
    if value is None:
        mark = "not reached" if result.done else "not run"
    elif "paper" in claim or isinstance(theirs, str | None):
        mark = "not comparable"
    else:
        mark = compare(value, theirs, kind, speedup=speedup)
    paper = claim.get("paper", paper)
    return {"claim": claim, "paper": paper, "ours": shown, "spread": apart, "mark": mark}


def compare(ours: float, paper: float, kind: Measure, *, speedup: bool = False) -> str:
    """Return how a value compares with the paper's: "better", "reproduced" or "worse"."""
    if kind == "best-accuracy" and not speedup:
        gain, close = ours - paper, CLOSE_ACCURACY
    else:
        change = ours / paper - 1
        gain, close = change if speedup else -change, CLOSE
    if abs(round(gain, 3 if kind == "best-accuracy" else 2)) <= close:  # as the page shows it
        return "reproduced"
    return "better" if gain > 0 else "worse"


def _how_far(result: Result, kind: Measure) -> str:
    """Return how far the runs of a cell without a value came."""
    if not result.done:
        return ""
    summaries = [run.record.summary for run in result.done]
    best = max(summary["best-accuracy"] or 0.0 for summary in summaries)
    text = f"best {100 * best:.1f} % in {max(each['rounds'] for each in summaries):,} rounds"
    some = any(value is not None for value in result.values)
    return f"{text}; {seeds(result.values)}: {spread(result.values, kind)}" if some else text
