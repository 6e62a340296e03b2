"""The command `compare`: several runs in a table and a figure."""

from itertools import compress
from pathlib import Path
from typing import Annotated

import typer

from fedavg_app.cli.clocks import clocks_of, link_of
from fedavg_app.cli.comparison_table import Row, Spread, as_csv, each_run, print_table
from fedavg_app.cli.latex_table import as_latex
from fedavg_app.errors import ConfigError
from fedavg_app.links import LinkName
from fedavg_app.results.comparison import cost, one_objective
from fedavg_app.results.comparison_lines import group_runs
from fedavg_app.results.comparison_panels import Panel, default_panels
from fedavg_app.results.finished_run import FinishedRun, read_run
from tasks.objective import ACCURACY

OUTPUT = "Output"


def compare(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN...", help="folders of runs")],
    *,
    target: Annotated[
        float | None,
        typer.Option(help="count rounds, bytes, seconds to this accuracy, or other objective"),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(help="a run's name, once per run; runs of the same name are one line"),
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
    spread: Annotated[
        Spread,
        typer.Option(
            help="beside each mean: the sample standard deviation, or least and largest value; or "
            "a row for every run",
            rich_help_panel=OUTPUT,
        ),
    ] = "std",
    unfinished: Annotated[
        bool,
        typer.Option(
            "--unfinished", help="also runs that were interrupted, failed, or are still running"
        ),
    ] = False,
    csv: Annotated[
        Path | None,
        typer.Option(
            help="write all numbers as CSV: of each run, and of each line", rich_help_panel=OUTPUT
        ),
    ] = None,
    latex: Annotated[
        Path | None, typer.Option(help="write a table as LaTeX", rich_help_panel=OUTPUT)
    ] = None,
    siunitx: Annotated[
        bool,
        typer.Option("--siunitx", help="the LaTeX for siunitx's columns S", rich_help_panel=OUTPUT),
    ] = False,
    plot: Annotated[
        Path | None,
        typer.Option(
            help="draw the figure into this file: .png, .pdf or .svg", rich_help_panel=OUTPUT
        ),
    ] = None,
    width: Annotated[
        float | None,
        typer.Option(
            min=2,
            help="the figure's width in inches, with text of 8 points; 3.3 is a column of a paper",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    panel: Annotated[
        list[Panel] | None,
        typer.Option(
            help="a panel of the figure, once per panel: by round; by bytes up, down, or both; by "
            "time on the link or the runs' links, or by the clock on the wall",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
) -> None:
    """Compare runs by rounds, by bytes and by time: tables, and a figure with --plot.

    Runs that differ only in the seed are one line, with the mean of their values and the --spread;
    diverged runs have separate lines, and unfinished runs are left out. "best" and "final" are
    accuracies, or values of the runs' objective, "rejected" counts the clients' replies that were
    rejected or came too late, "up" and "down" are the bytes that the clients sent and received,
    "link" is the time that the largest messages of each round take over the link, without
    computing, and "virtual" the time by the runs' own links.
    """
    from fedavg_app.callbacks.comparison_figure import draw_comparison
    from fedavg_app.callbacks.figures import check_plot_path

    for key, value, other, path in (
        ("width", width, "plot", plot),
        ("panel", ", ".join(panel or ()), "plot", plot),
        ("siunitx", siunitx, "latex", latex),
    ):
        if value and path is None:
            raise ConfigError(key, str(value), f"give --{other}, too")
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
        raise ConfigError("RUN", str(folders[0]), "no run finished; give one that did")
    objective = one_objective(runs).name
    lines = group_runs(runs, list(compress(label or [], taken)), group_by or ())
    clocks = clocks_of(runs, link_of(link, up=up, down=down, latency=latency))
    panels = panel or default_panels(clocks)
    if Panel.LINK in panels and len(clocks) == 1:
        raise ConfigError("panel", "link", "give a --link, or runs that all have links")

    rows = [Row(line, [cost(run, clocks, target) for run in line.runs]) for line in lines]
    table = each_run(rows) if spread == "runs" else rows
    title = "whole runs" if objective == ACCURACY else f"whole runs, by {objective}"
    print_table(title, table, spread)
    for line in lines:
        if any(run.on_clients for run in line.runs):
            typer.echo(f"{line.name}: the {objective} is the clients' own, who keep local-arrays")
    if target is not None:
        print_table(f"to {objective} {target:g}", table, spread, to_target=True)
    if csv is not None:
        _write("csv", csv, as_csv(rows))
    if latex is not None:
        _write("latex", latex, as_latex(table, spread, target, siunitx=siunitx))
    if plot is not None:
        draw_comparison(lines, target, panels, clocks, plot, width)
        typer.echo(f"figure: {plot}")


def _print_left_out(run: FinishedRun) -> None:
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
    typer.echo(f"table: {path}")
