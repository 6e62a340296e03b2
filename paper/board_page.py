"""The boards as text: results/leaderboard.md, and the rows that the report shows."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from matplotlib.figure import Figure

from fedavg_app.callbacks.figures import COLORS, save_figure
from fedavg_app.config import RunConfig
from paper.boards import MEASURES, METHOD, Board, Row, load_boards, standings
from paper.experiments import Measure
from paper.records import RECORDS, Record, read_all
from paper.text import NONE, SYMBOLS, number, seeds
from tasks.arguments import inline
from tasks.data.atomic_file import replacing
from tasks.objective import ACCURACY

# How many methods a board's picture shows, and how many its page without a click.
DRAWN, SHOWN = 12, 5
# These are said in one word each, or in the method's name.
SAID = ("strategy", "strategy-args", "local-epochs", "local-steps", "batch-size", "learning-rate")


def write_page(boards: Path, results: Path) -> Path:
    """Write the page of all boards in a folder, from the records of the results; return its path.

    Raises:
        ConfigError: A board or a record cannot be read.
    """
    records = read_all(results / RECORDS)
    ranked = [(board, standings(board, records)) for board in load_boards(boards)]
    shown = [show_board(board, rows) for board, rows in ranked]
    for board, rows in ranked:
        draw_board(board, rows, results / "plots" / f"board-{board.name}.png")
    return write_template(results / "leaderboard.md", boards=shown)


def draw_board(board: Board, rows: list[Row], path: Path) -> None:
    """Draw the MB until the highest target of the first methods: up, and both ways."""
    target, up, both = board.targets[-1], *MEASURES[:2]
    first = [row for row in rows if row.mean(target, up) is not None][:DRAWN]
    figure = Figure(figsize=(7, 1.1 + 0.3 * len(first)), layout="constrained")
    axes = figure.subplots()
    for kind, color in ((up, COLORS[0]), (both, "none")):
        values = [row.mean(target, kind) or math.nan for row in first]
        axes.scatter(
            values, range(len(first)), 28, facecolors=color, edgecolors=COLORS[0],
            label=what(board, kind),
        )  # fmt: skip
    labels = [label(place(board, rows, row), row) for row in first]
    axes.set_yticks(range(len(first)), labels, fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel(f"MB a participant until {target_text(board, target)}")
    if first:
        axes.set_xscale("log")
    axes.grid(axis="x", alpha=0.3)
    axes.legend(fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    save_figure(figure, path)


def write_template(path: Path, **values: Any) -> Path:
    """Write a file by the template of its name; return its path."""
    environment = Environment(
        loader=PackageLoader("paper"), autoescape=select_autoescape(), undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=path.suffix == ".md",
    )  # fmt: skip
    environment.filters["cell"] = lambda text: text.replace("|", "\\|").replace("<", "&lt;")
    # Columns are narrow: lines are not to break within "n = 1".
    environment.filters["tied"] = lambda text: text.replace(" = ", "&nbsp;=&nbsp;")
    page = environment.get_template(path.name).render(**values)
    with replacing(path) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return path


def show_board(board: Board, rows: list[Row]) -> dict[str, Any]:
    """Return the templates' data of a board.

    The highest target, by which rows are ordered, comes first; minutes only if a row has them.
    """
    kinds = [kind for kind in MEASURES if any(row.scores[board.targets[0], kind] for row in rows)]
    heads = [what(board, kind) for kind in kinds]
    return {
        "board": board,
        "shared": inline(board.run),
        "heads": [(target_text(board, target), heads) for target in reversed(board.targets)],
        "shown": SHOWN,
        "rows": [_show_row(board, rows, row, kinds) for row in rows],
    }


def target_text(board: Board, target: float) -> str:
    """Return a target as text, such as "97 %" or "perplexity 9"."""
    name = board.objective.name
    return f"{100 * target:g} %" if name == ACCURACY else f"{name} {target:g}"


def what(board: Board, kind: Measure) -> str:
    """Return what a measure counts, in a few words."""
    return ("MB up", "MB up + down", f"minutes on {board.link}")[MEASURES.index(kind)]


def place(board: Board, rows: list[Row], row: Row) -> str:
    """Return a row's rank; a dash if not all its seeds reach the highest target."""
    arrived = row.mean(board.targets[-1], MEASURES[0]) is not None
    return str(rows.index(row) + 1) if arrived else NONE


def name(row: Row) -> str:
    """Return what the method is called: what it was entered as, or its strategy."""
    given = [record.name for record in row.runs if record.name]
    strategy, arguments = row.settings["strategy"], row.settings["strategy-args"]
    return given[-1] if given else f"{strategy}, {arguments}" if arguments else strategy


def label(rank: str, row: Row) -> str:
    """Return the rank of a row with its local work and name, in two lines, for a picture."""
    work = _settings(row).partition(",")[0]
    return fill(f"{rank}  {work}, {name(row)}", 52, max_lines=2, placeholder=" ...")


def cell(row: Row, target: float, kind: Measure) -> str:
    """Return the mean over the seeds with how far they lie apart, or how many of them arrived."""
    values, mean = row.scores[target, kind], row.mean(target, kind)
    if not values:
        return NONE
    if mean is None:
        return "not reached" if set(values) == {None} else seeds(values)
    found = [value for value in values if value is not None]
    apart = f" ({number(min(found), kind)} to {number(max(found), kind)})"
    return number(mean, kind) + (apart if len(found) > 1 else "")


def _show_row(board: Board, rows: list[Row], row: Row, kinds: Sequence[Measure]) -> dict[str, Any]:
    records = row.runs

    def each(part: Callable[[Record], str]) -> str:
        """Return the records' texts, each once, with a dash for a record without a text."""
        return "; ".join(dict.fromkeys(part(record) or NONE for record in records))

    return {
        "place": place(board, rows, row),
        "name": name(row),
        "settings": _settings(row),
        "seeds": len(records),
        "cells": [cell(row, target, kind) for target in reversed(board.targets) for kind in kinds],
        "ends": each(_end),
        "command": records[0].repeat,
        "numbers": ", ".join(str(record.config["seed"]) for record in records),
        "commit": each(lambda record: record.commit[:10] + record.commit[40:]),
        "versions": each(lambda record: ", ".join(map(" ".join, record.versions.items()))),
        "dates": each(lambda record: record.date),
        "data": board.data[:8],
        "models": each(lambda record: record.model[:8]),
    }


def _end(record: Record) -> str:
    objective, values = record.run.objective, record.history.value
    best = max(values) if objective.higher_is_better else min(values)
    is_share = objective.name == ACCURACY
    text = number(best, "best-accuracy") if is_share else objective.shown(best)
    diverged = ", diverged" if record.status == "diverged" else ""
    return f"{text} in {record.summary['rounds']:,} rounds{diverged}"


def _settings(row: Row) -> str:
    """Return the local work, and what differs from the defaults; a name given hides no strategy."""
    own, defaults = row.settings, RunConfig().model_dump(by_alias=True)
    steps, epochs = own["local-steps"], own["local-epochs"]
    work = f"n = {steps}" if steps else f"{SYMBOLS['local-epochs']} = {epochs}"
    batch = own["batch-size"] or "\N{INFINITY}"
    rate = f"{SYMBOLS['learning-rate']} = {own['learning-rate']}"
    parts = [rate] if own["strategy"] == "fedsgd" else [work, f"B = {batch}", rate]
    parts += [
        f"{key} = {own[key]}" for key in METHOD if key not in SAID and own[key] != defaults[key]
    ]
    if any(record.name for record in row.runs):
        parts.append(" ".join(filter(None, (own["strategy"], own["strategy-args"]))))
    return ", ".join(parts)
