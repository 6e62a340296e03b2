"""The command `compare`: several runs in a table and a figure."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from fedavg_app.cli.options import Panel, Spread
from fedavg_app.config import config_error
from fedavg_app.errors import ConfigError
from fedavg_app.links import LINKS, Link, LinkName
from fedavg_app.results.finished_run import FinishedRun, read_run


def _output(text: str, *names: str, **checks: Any) -> Any:
    return typer.Option(*names, help=text, rich_help_panel="Output", **checks)


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
        LinkName | None, typer.Option(help="count the time that messages take over this link")
    ] = None,
    up: Annotated[float | None, typer.Option(help="the link's Mbit/s from a device")] = None,
    down: Annotated[float | None, typer.Option(help="its Mbit/s to a device")] = None,
    latency: Annotated[float | None, typer.Option(help="its round trip in milliseconds")] = None,
    unfinished: Annotated[
        bool,
        typer.Option(
            "--unfinished", help="also runs that were interrupted, failed, or are still running"
        ),
    ] = False,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="show how others differ from this line in runs of the same seed and partition",
        ),
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(
            metavar="client:p10",
            help="also show this of the clients' own values in their last test: client:mean, "
            "client:worst or a percentile; may be repeated",
        ),
    ] = None,
    spread: Annotated[
        Spread,
        _output("beside each mean: its standard deviation, its range, or a row for every run"),
    ] = "std",
    csv: Annotated[Path | None, _output("write each run and line as CSV, with all numbers")] = None,
    latex: Annotated[Path | None, _output("write a table as LaTeX")] = None,
    siunitx: Annotated[bool, _output("the LaTeX is for siunitx's columns S", "--siunitx")] = False,
    plot: Annotated[
        Path | None, _output("draw the figure into this file: .png, .pdf or .svg")
    ] = None,
    width: Annotated[
        float | None,
        _output("the figure's inches, with text of 8 points; 3.3 is a column of a paper", min=2),
    ] = None,
    ylim: Annotated[
        tuple[float, float] | None,
        _output("the figure's least and largest value", metavar="LOW HIGH"),
    ] = None,
    panel: Annotated[
        list[Panel] | None,
        _output(
            "draw by rounds; by bytes up, down or both; by the time on the link or the runs' "
            "links, or the clock on the wall; may be repeated"
        ),
    ] = None,
) -> None:
    """Compare runs by rounds, by bytes and by time: tables, and a figure with --plot.

    Runs that differ only in the seed are one line, with the mean of their values. Diverged runs
    have lines of their own; unfinished runs are left out. Runs of different objectives are in
    tables of their own.

    The bytes "up" and "down" are those of all clients. "link" is the time of each round's largest
    messages over the link, without computing, and "virtual" that on the runs' own links. "rejected"
    counts replies, those that came too late among them.
    """
    from fedavg_app.callbacks.figures import check_plot_path
    from fedavg_app.cli.client_statistics import check_columns
    from fedavg_app.cli.comparison import compare_runs
    from fedavg_app.cli.comparison_figure import draw_comparison
    from fedavg_app.cli.comparison_pairs import paired_differences
    from fedavg_app.cli.comparison_table import as_csv, print_tables
    from fedavg_app.cli.latex_table import as_latex

    for key, value, other, path in (
        ("width", width, "plot", plot),
        ("panel", ", ".join(panel or ()), "plot", plot),
        ("ylim", " ".join(map(str, ylim or ())), "plot", plot),
        ("siunitx", siunitx, "latex", latex),
    ):
        if value and path is None:
            raise ConfigError(key, str(value), f"give --{other}, too")
    if ylim and not ylim[0] < ylim[1]:
        raise ConfigError("ylim", f"{ylim[0]} {ylim[1]}", "give the smaller number first")
    if plot is not None:
        check_plot_path(plot)
    if label and len(label) != len(folders):
        raise ConfigError("label", ", ".join(label), f"give one for each of the {len(folders)}")
    runs, labels = _read(folders, label or [], unfinished=unfinished)
    columns = list(dict.fromkeys(column or ()))
    check_columns(columns, runs)
    over = _link(link, up=up, down=down, latency=latency)
    compared = compare_runs(runs, target, over, labels, group_by or (), columns=columns)
    has_link = all(each.has_link for each in compared)
    panels = panel or [Panel.ROUND, Panel.UP, Panel.LINK if has_link else Panel.WALL]
    if Panel.LINK in panels and not has_link:
        raise ConfigError("panel", "link", "give a --link, or runs that all have links")
    pairs = [paired_differences(each, against) if against else None for each in compared]

    both = list(zip(compared, pairs, strict=True))
    for each, differences in both:
        print_tables(each, spread, differences)
    if csv is not None:
        _write("csv", csv, as_csv(both))
    if latex is not None:
        tables = [
            as_latex(each, spread, differences, siunitx=siunitx) for each, differences in both
        ]
        _write("latex", latex, "\n".join(tables))
    if plot is not None:
        draw_comparison(compared, dict.fromkeys(panels, ""), plot, width, ylim)
        typer.echo(f"figure: {plot}")


def _read(
    folders: Sequence[Path], labels: Sequence[str], *, unfinished: bool
) -> tuple[list[FinishedRun], list[str]]:
    """Return the runs to compare, and their labels, if there are any; say which are left out."""
    found = [read_run(folder) for folder in folders]
    taken, seen = list[bool](), set[Path]()
    for folder, run in zip(folders, found, strict=True):
        reason = ""
        if folder.resolve() in seen:
            reason = "it is there already"
        elif not (run.came_to_its_end or (unfinished and run.history)):
            reason = f"{run.status}, without a round"
            if run.history:
                last = run.history[-1].round
                reason = f"{run.status} after round {last}; --unfinished includes it"
        if reason:
            typer.echo(f"left out: {run.folder}: {reason}")
        taken.append(not reason)
        seen.add(folder.resolve())
    if not any(taken):
        raise ConfigError("RUN", str(folders[0]), "no run finished; give one that did")
    runs = [run for run, is_taken in zip(found, taken, strict=True) if is_taken]
    return runs, [label for label, is_taken in zip(labels, taken, strict=False) if is_taken]


def _link(name: LinkName | None, **options: float | None) -> Link | None:
    """Return the link that the options describe; None if they name none.

    Raises:
        ConfigError: The options conflict, or a value cannot be used.
    """
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


def _write(key: str, path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(key, str(path), f"cannot be written: {error.strerror}") from None
    typer.echo(f"table: {path}")
