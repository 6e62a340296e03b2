"""The numbers of a table as text."""

import math
from typing import Any

from paper.experiments import Cell, Entry, Experiment, Measure, Run
from paper.records import command_line
from paper.tables import Done, Result, measure

# The papers' symbols of the keys that are grids.
SYMBOLS = {"learning-rate": "\N{GREEK SMALL LETTER ETA}", "batch-size": "B", "local-epochs": "E"}
# In the place of a number: nothing of the cell was run.
NOT_RUN = "\N{EN DASH}"
MINUS = "\N{MINUS SIGN}"
TIMES = "\N{MULTIPLICATION SIGN}"


def show(experiment: Experiment, result: Result) -> dict[str, Any]:
    """Return a cell as text; what there is not is empty.

    "state" is "measured", "missed" or "absent"; "notes" is what has to be said of it; "link" the
    anchor of its run; "title" its command, or that it was not run and how long it would take.
    """
    kind = experiment.measure
    first = result.best[0] if result.best else None
    ours, state = _ours(result, kind)
    return {
        "ours": ours,
        "state": state,
        "notes": _notes(result, kind) if first else [],
        "link": _anchor(experiment, first.run) if first else "",
        "title": first.record.repeat if first else _why_not_run(result.cell),
        "speedup": times(result.speedup) or _more_than(result.speedup_above),
        "paper": entry(result.paper, kind),
        "paper_speedup": times(result.paper_speedup),
        "others": entry(result.others, kind),
        "difference": _signed(result.difference, kind),
    }


def _ours(result: Result, kind: Measure) -> tuple[str, str]:
    if not result.best:
        return NOT_RUN, "absent"
    if result.value is not None:
        return number(result.value, kind), "measured"
    diverged = all(run.record.status == "diverged" for run in result.best)
    return "diverged" if diverged else "not reached", "missed"


def _why_not_run(cell: Cell) -> str:
    estimate = f"; about {duration(cell.hours)} a run" if cell.hours else ""
    return f"not run: the machine time went to other cells{estimate}"


def _notes(result: Result, kind: Measure) -> list[str]:
    records = [run.record for run in result.best]
    notes = [_setting(result.best[0].run)]
    if result.value is None:
        column = result.cell.column
        rounds = max(min(record.summary["rounds"], column.within or math.inf) for record in records)
        best = max(measure(record, "best-accuracy", column) or 0.0 for record in records)
        notes.append(f"in {rounds:,} rounds, best {100 * best:.1f} %")
    elif any(record.status == "diverged" for record in records):
        notes.append("diverged later")
    if len(records) > 1 and any(run.value is not None for run in result.best):
        notes.append(f"{seeds(result)}: {spread(result, kind)}")
    if len(result.done) < len(result.cell.runs):
        notes.append(f"{len(result.done)} of {len(result.cell.runs)} runs")
    return [note for note in notes if note]


def seeds(result: Result) -> str:
    """Return how many seeds reached the target, and of how many."""
    total = len(result.best)
    reached = sum(run.value is not None for run in result.best)
    if total == reached == 1:
        return "one seed"
    return f"{reached} seeds" if reached == total else f"{reached} of {total} seeds"


def spread(result: Result, kind: Measure) -> str:
    """Return how far the seeds lie apart."""
    values = [run.value for run in result.best if run.value is not None]
    lowest, highest = number(min(values), kind), number(max(values), kind)
    return lowest if lowest == highest else f"{lowest} to {highest}"


def show_run(experiment: Experiment, result: Result, run: Run, done: Done | None) -> dict[str, str]:
    """Return a run as text, for the list of runs; ``done`` is None if it was not run."""
    value = done.value if done else None
    shown = number(value, experiment.measure) if value is not None else "not reached"
    if done and done.record.status == "diverged":
        shown += ", diverged"
    return {
        "anchor": _anchor(experiment, run),
        "cell": result.cell.name,
        "setting": _setting(run),
        "seed": str(run.config.seed),
        "value": shown if done else "not run",
        "time": _time(result.cell, done),
        "best": f"{100 * (done.record.summary['best-accuracy'] or 0):.2f} %" if done else "",
        "command": done.record.repeat if done else command_line(run.config),
    }


def duration(hours: float) -> str:
    """Return a time as text, in seconds, minutes or hours."""
    if hours < 1 / 60:
        return f"{3600 * hours:.0f} s"
    if hours < 1:
        return f"{60 * hours:.0f} min"
    return f"{hours:.1f} h" if hours < 10 else f"{hours:,.0f} h"


def _time(cell: Cell, done: Done | None) -> str:
    """Return how long a run took, or would take by the estimate; empty where neither is known."""
    if done:
        return duration(done.hours)
    return f"about {duration(cell.hours)}" if cell.hours else ""


def number(value: float, kind: Measure) -> str:
    """Return a measured value as text: rounds, megabytes or an accuracy in [0, 1]."""
    if kind == "best-accuracy":
        return f"{100 * value:.1f} %"
    if kind in ("upload-to-target", "traffic-to-target", "minutes-to-target"):
        return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"
    return f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def entry(given: Entry | None, kind: Measure) -> str:
    """Return a paper's entry: a text as it is, a number with no more digits than it has."""
    if given is None or isinstance(given, str):
        return given or ""
    return f"{100 * given:.4g} %" if kind == "best-accuracy" else f"{given:,g}"


def times(ratio: float | None) -> str:
    """Return a ratio as text; empty for none."""
    return "" if ratio is None else f"{ratio:.1f}{TIMES}"


def _more_than(ratio: float | None) -> str:
    """Return a bound from below, which is not to be rounded up."""
    return "" if ratio is None else f"> {times(math.floor(10 * ratio) / 10)}"


def _signed(difference: float | None, kind: Measure) -> str:
    if difference is None:
        return ""
    points = kind == "best-accuracy"
    text = f"{100 * difference:+.{1 if points else 0}f} {'points' if points else '%'}"
    return text.replace("-", MINUS)


def _anchor(experiment: Experiment, run: Run) -> str:
    return f"{experiment.name}--{run.slug}"


def _setting(run: Run) -> str:
    return ", ".join(
        f"{SYMBOLS.get(key, key)} = {value}" for key, value in run.chosen.items() if key != "seed"
    )
