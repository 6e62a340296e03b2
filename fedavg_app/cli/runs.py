"""The command `runs`: past runs as a table."""

import re
import sys
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import typer
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from fedavg_app.errors import ConfigError
from fedavg_app.results.finished_run import FinishedRun, read_run
from fedavg_app.results.run_folder import CONFIG_FILE

# Where runs and sweeps leave their folders, unless they are told otherwise.
FOLDERS = (Path("runs"), Path("sweeps"))
# The beginning of the name of a run's folder.
STAMP = re.compile(r"(\d{4})(\d\d)(\d\d)-(\d\d)(\d\d)\d\d-")


Column = Literal["when", "task", "strategy", "status", "best", "rounds", "up", "down", "folder"]
NUMBERS = ("best", "rounds", "up", "down")


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
    sort: Annotated[Column, typer.Option(help="the column by which they are sorted")] = "when",
    reverse: Annotated[
        bool, typer.Option("--reverse", help="the largest, or the newest, first")
    ] = False,
) -> None:
    """List past runs: when, what, how they ended, best value, rounds, bytes up and down, folder."""
    roots = folders or [folder for folder in FOLDERS if folder.is_dir()]
    found = [run for root in roots for run in _runs(root)]
    if not found:
        asked = ", ".join(map(str, folders or FOLDERS))
        raise ConfigError("FOLDER", asked, "no runs there; give a folder with runs")
    for condition in where or []:
        found = _chosen(found, condition)
    rows = [_row(run) for run in found]
    known = [row for row in rows if row[sort] is not None]
    known.sort(key=lambda row: row[sort], reverse=reverse)
    table = Table(box=None, pad_edge=False)
    for column in get_args(Column):
        justify: Literal["left", "right"] = "right" if column in NUMBERS else "left"
        table.add_column(column, justify=justify, no_wrap=True)
    for row in [*known, *(row for row in rows if row[sort] is None)]:
        table.add_row(*(_text(column, row) for column in get_args(Column)))
    # Never wrapped: a folder's name can be copied whole.
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
    if not equals or (runs and not any(key in config for config in settings)):
        known = ", ".join(sorted({key for config in settings for key in config}))
        raise ConfigError("where", condition, f"give KEY=VALUE with one of the keys {known}")
    pairs = zip(runs, settings, strict=True)
    return [run for run, config in pairs if key in config and fnmatchcase(str(config[key]), value)]


def _row(run: FinishedRun) -> dict[str, Any]:
    stamp = STAMP.match(run.folder.name)
    best = run.best
    total = run.history[-1].total if run.history else {}
    return {
        "when": "{}-{}-{} {}:{}".format(*stamp.groups()) if stamp else None,
        "task": run.config.get("task"),
        "strategy": run.config.get("strategy", "central"),
        "status": run.status,
        "best": best and best.value,
        "rounds": run.history[-1].round if run.history else None,
        "up": total.get("bytes_up"),
        "down": total.get("bytes_down"),
        "folder": str(run.folder),
        "objective": run.objective,
    }


def _text(column: str, row: Mapping[str, Any]) -> str:
    value, objective = row[column], row["objective"]
    if value is None:
        return "-"
    if column == "best":
        return f"{objective.name} {objective.shown(value)}"
    return decimal(int(value)) if column in ("up", "down") else str(value)
