"""The command `runs`: past runs as a table."""

import re
import sys
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from fedavg_app.errors import ConfigError
from fedavg_app.results.finished_run import FinishedRun, read_run
from fedavg_app.results.run_folder import CONFIG_FILE
from tasks.objective import Objective

# Where runs and sweeps leave their folders, unless they are told otherwise.
FOLDERS = (Path("runs"), Path("sweeps"))
# How the name of a run's folder begins.
STAMP = re.compile(r"(\d{4})(\d\d)(\d\d)-(\d\d)(\d\d)\d\d-")


class Column(StrEnum):
    """A column of the table."""

    WHEN = "when"
    TASK = "task"
    STRATEGY = "strategy"
    STATUS = "status"
    BEST = "best"
    ROUNDS = "rounds"
    UP = "up"
    DOWN = "down"
    FOLDER = "folder"


def list_runs(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FOLDER...", help="where to look", show_default="runs and sweeps"),
    ] = None,
    *,
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="only runs with this value of a key, or this status; * is any text",
        ),
    ] = None,
    sort: Annotated[Column, typer.Option(help="the column by which they are sorted")] = Column.WHEN,
    reverse: Annotated[
        bool, typer.Option("--reverse", help="the largest, or the newest, first")
    ] = False,
) -> None:
    """List past runs: when, what, how they ended, best value, rounds, bytes up and down, folder."""
    roots = folders or [folder for folder in FOLDERS if folder.is_dir()]
    found = [run for root in roots for run in _runs(root)]
    if not found:
        asked = ", ".join(map(str, folders or FOLDERS))
        raise ConfigError("FOLDER", asked, "no run is there; give a folder that has some")
    for condition in where or []:
        found = _chosen(found, condition)
    rows = [_row(run) for run in found]
    known = [row for row in rows if row[sort] is not None]
    known.sort(key=lambda row: row[sort], reverse=reverse)
    table = Table(box=None, pad_edge=False)
    for column in Column:
        is_number = column in (Column.BEST, Column.ROUNDS, Column.UP, Column.DOWN)
        table.add_column(column, justify="right" if is_number else "left", no_wrap=True)
    for row in [*known, *(row for row in rows if row[sort] is None)]:
        table.add_row(*(_text(column, row[column], row["objective"]) for column in Column))
    # As wide as it is: a folder's name can be copied whole.
    console = Console(highlight=False, markup=False, width=sys.maxsize)
    console.width = console.measure(table).maximum
    console.print(table)


def _runs(root: Path) -> list[FinishedRun]:
    """Return the runs below a folder; a line on stderr names those that cannot be read."""
    found = []
    for path in sorted(root.rglob(CONFIG_FILE)):
        try:
            found.append(read_run(path.parent))
        except ConfigError as error:
            typer.echo(f"left out: {error}", err=True)
    return found


def _chosen(runs: list[FinishedRun], condition: str) -> list[FinishedRun]:
    key, equals, value = condition.partition("=")
    settings = [{"strategy": "central", **run.config, "status": run.status} for run in runs]
    if not equals or (runs and not any(key in own for own in settings)):
        known = ", ".join(sorted({key for own in settings for key in own}))
        raise ConfigError("where", condition, f"give KEY=VALUE with one of the keys {known}")
    pairs = zip(runs, settings, strict=True)
    return [run for run, own in pairs if key in own and fnmatchcase(str(own[key]), value)]


def _row(run: FinishedRun) -> dict[str, Any]:
    stamp = STAMP.match(run.folder.name)
    best = run.objective.best_point(run.curve)
    total = run.history[-1].total if run.history else {}
    return {
        Column.WHEN: "{}-{}-{} {}:{}".format(*stamp.groups()) if stamp else None,
        Column.TASK: run.config.get("task", ""),
        Column.STRATEGY: run.config.get("strategy", "central"),
        Column.STATUS: run.status,
        Column.BEST: best[1] if best else None,
        Column.ROUNDS: run.history[-1].round if run.history else None,
        Column.UP: total.get("bytes_up"),
        Column.DOWN: total.get("bytes_down"),
        Column.FOLDER: str(run.folder),
        "objective": run.objective,
    }


def _text(column: Column, value: Any, objective: Objective) -> str:
    if value is None:
        return "-"
    if column is Column.BEST:
        return f"{objective.name} {objective.shown(value)}"
    return decimal(int(value)) if column in (Column.UP, Column.DOWN) else str(value)
