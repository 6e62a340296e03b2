"""The command `compare`: several runs in one table and one figure."""

from collections.abc import Sequence
from functools import partial
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import ValidationError

from fedavg_app.config import config_error
from fedavg_app.errors import ConfigError
from fedavg_app.links.link import LINKS, Link, LinkName, link_times
from tasks.objective import ACCURACY

if TYPE_CHECKING:
    from fedavg_app.cli.comparison_table import Table
    from fedavg_app.results.comparison import Clock
    from fedavg_app.results.finished_run import FinishedRun

OUTPUT = "Output"
# Columns of a terminal on which each table has the width that it asks for.
WIDE = 1000


def compare(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN...", help="folders of runs")],
    *,
    target: Annotated[
        float | None,
        typer.Option(help="count rounds, bytes, seconds to this accuracy, or other objective"),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(help="the name of a run, once per run; runs of the same name are one line"),
    ] = None,
    group_by: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY", help="make one line of runs with the same value of this key"),
    ] = None,
    link: Annotated[
        LinkName | None,
        typer.Option(help="count the time that messages take over this link"),
    ] = None,
    up: Annotated[float | None, typer.Option(help="the link's Mbit/s from a device")] = None,
    down: Annotated[float | None, typer.Option(help="its Mbit/s to a device")] = None,
    latency: Annotated[float | None, typer.Option(help="its round trip in milliseconds")] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            help="draw the figure into this file: .png, .pdf or .svg", rich_help_panel=OUTPUT
        ),
    ] = None,
    unfinished: Annotated[
        bool,
        typer.Option(
            "--unfinished", help="also runs that were interrupted, failed, or still go on"
        ),
    ] = False,
    csv: Annotated[
        Path | None, typer.Option(help="write the last table as CSV", rich_help_panel=OUTPUT)
    ] = None,
    latex: Annotated[
        Path | None, typer.Option(help="write the last table as LaTeX", rich_help_panel=OUTPUT)
    ] = None,
) -> None:
    """Compare runs by rounds, by bytes and by time: tables, and a figure with --plot.

    Runs that differ in the seed alone are one line, with the mean and the range of their values;
    those that diverged are a line of their own, and those that did not come to their end are left
    out. "best" and "final" are accuracies, or values of the runs' objective, "rejected" counts the
    clients' replies that were rejected or did not come in time, "up" is what the clients sent in
    the run, "down" what they were sent, "link" the time that the largest messages of each round
    take over one link, without computing, and "virtual" the time by the runs' own links.
    """
    from fedavg_app.callbacks.comparison_figure import draw_comparison
    from fedavg_app.callbacks.plots import check_plot_path
    from fedavg_app.cli.comparison_table import Row, as_csv, as_latex
    from fedavg_app.results.comparison import cost, group_runs, one_objective
    from fedavg_app.results.finished_run import read_run

    if plot is not None:
        check_plot_path(plot)
    if label and len(label) != len(folders):
        raise ConfigError("label", ", ".join(label), f"give one for each of the {len(folders)}")
    found = [read_run(folder) for folder in folders]
    taken = [run.came_to_its_end or (unfinished and bool(run.history)) for run in found]
    for run, is_taken in zip(found, taken, strict=True):
        if not is_taken:
            _print_left_out(run)
    runs = list(compress(found, taken))
    if not runs:
        raise ConfigError("RUN", str(folders[0]), "no run came to its end; give one that did")
    objective = one_objective(runs).name
    lines = group_runs(runs, list(compress(label or [], taken)), group_by or ())
    clocks = _clocks(runs, _link(link, up=up, down=down, latency=latency))

    def table_of(target: float | None = None) -> "Table":
        return {
            name: Row(line[0].status, [cost(run, clocks, target) for run in line])
            for name, line in lines.items()
        }

    table = table_of()
    _print_table("whole runs" if objective == ACCURACY else f"whole runs, by {objective}", table)
    for name, line in lines.items():
        if any(run.on_clients for run in line):
            typer.echo(f"{name}: the {objective} is the clients' own, who keep local-arrays")
    if target is not None:
        table = table_of(target)
        _print_table(f"to {objective} {target:g}", table)
    for key, path, content in (("csv", csv, as_csv), ("latex", latex, as_latex)):
        if path is not None:
            _write(key, path, content(table))
            typer.echo(f"table: {path}")
    if plot is not None:
        draw_comparison(lines, target, *list(clocks.items())[-1], plot)
        typer.echo(f"figure: {plot}")


def _print_left_out(run: "FinishedRun") -> None:
    if run.history:
        reason = f"{run.status} after round {run.history[-1].round}; --unfinished includes it"
    else:
        reason = f"{run.status}, without a round"
    typer.echo(f"left out: {run.folder}: {reason}")


def _write(key: str, path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(key, str(path), f"cannot be written: {error.strerror}") from None


def _clocks(runs: "Sequence[FinishedRun]", link: Link | None) -> "dict[str, Clock]":
    """Return the clocks that all runs have, by the name of their column."""
    from fedavg_app.results.comparison import wall_clock
    from fedavg_app.results.metrics import virtual_times

    clocks: dict[str, Clock] = {"seconds": wall_clock}
    if link is not None:
        clocks["seconds_link"] = partial(link_times, link=link)
    elif all(virtual_times(run.history)[-1] for run in runs):
        clocks["seconds_virtual"] = virtual_times
    return clocks


def _link(name: LinkName | None, **options: float | None) -> Link | None:
    """Return the link that the options describe; None where they name none."""
    given = {key: value for key, value in options.items() if value is not None}
    if name is None and not given:
        return None
    if name is None and not given.keys() >= {"up", "down"}:
        fix = "give both in Mbit/s, or the name of a --link"
        raise ConfigError("up, down", (options["up"], options["down"]), fix)
    try:
        return Link(**((LINKS[name].model_dump() if name else {}) | given))
    except ValidationError as error:
        raise config_error(error, Link) from None


def _print_table(title: str, rows: "Table") -> None:
    from rich.console import Console

    from fedavg_app.cli.comparison_table import on_terminal

    console = Console(highlight=False, markup=False)
    table = on_terminal(title, rows)
    if console.measure(table, options=console.options.update(width=WIDE)).minimum > console.width:
        table = on_terminal(title, rows, narrow=True)
    console.print(table)
