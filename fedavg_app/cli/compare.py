"""The command `compare`: several runs in one table and one figure."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedavg_app.errors import ConfigError
from fedavg_app.links.link import LINKS, Link, LinkName, link_seconds

if TYPE_CHECKING:
    from fedavg_app.results.finished_run import FinishedRun
    from fedavg_app.results.metrics import RoundMetrics


# Keys whose values need no name beside them.
SAY_IT_ALL = ("strategy", "strategy-args", "task", "partition", "partition-args")


def compare(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN...", help="folders of runs")],
    *,
    target: Annotated[
        float, typer.Option(min=0, max=1, help="count rounds, bytes, seconds to this accuracy")
    ] = 0,
    link: Annotated[
        LinkName | None,
        typer.Option(help="count the minutes that messages take over this link"),
    ] = None,
    up: Annotated[float, typer.Option(min=0, help="the link's Mbit/s from a device")] = 0,
    down: Annotated[float, typer.Option(min=0, help="its Mbit/s to a device")] = 0,
    latency: Annotated[
        float | None, typer.Option(min=0, help="its round trip in milliseconds")
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(help="draw the figure into this PNG file", show_default=False),
    ] = None,
) -> None:
    """Compare runs by rounds, by bytes and by seconds: tables, and a figure with --plot.

    "up" is what the clients sent in the run, "down" what they were sent, "link" the time that the
    largest messages of each round take over one link, without computing.
    """
    from fedavg_app.callbacks.comparison import draw_comparison
    from fedavg_app.callbacks.plots import check_plot_path
    from fedavg_app.results.finished_run import read_run

    if plot is not None:
        check_plot_path(plot)
    runs = [read_run(folder) for folder in folders]
    names = labels([run.config for run in runs])
    named = dict(zip(names, runs, strict=True))
    chosen = _link(link, up, down, latency)
    _print_totals(named, chosen)
    if target:
        _print_until(target, named, chosen)
    if plot is not None:
        draw_comparison({name: run.history for name, run in named.items()}, target or None, plot)
        typer.echo(f"figure: {plot}")


def labels(configs: list[dict[str, Any]]) -> list[str]:
    """Return a name for each run: the keys in which the runs differ, with their values."""
    keys = sorted({key for config in configs for key in config} - {"resume", "run-dir", "data-dir"})
    differing = [key for key in keys if len({str(config.get(key)) for config in configs}) > 1]
    found = [
        ", ".join(_setting(key, config[key]) for key in differing if config.get(key, "") != "")
        or str(config.get("strategy", "central"))
        for config in configs
    ]
    return [
        name if found.count(name) == 1 else f"{name} ({place + 1})"
        for place, name in enumerate(found)
    ]


def _setting(key: str, value: object) -> str:
    return str(value) if key in SAY_IT_ALL else f"{key} {value}"


def _link(name: LinkName | None, up: float, down: float, latency: float | None) -> Link | None:
    """Return the link that the options describe; None where they name none."""
    preset = LINKS[name] if name else None
    if preset is None and not (up or down or latency):
        return None
    if preset is None and not (up and down):
        raise ConfigError("up, down", (up, down), "give both in Mbit/s, or the name of a --link")
    given = {"up": up or None, "down": down or None, "latency": latency}
    base = preset or Link(up=up, down=down)
    return base.model_copy(update={key: one for key, one in given.items() if one is not None})


def _print_totals(runs: Mapping[str, "FinishedRun"], link: Link | None) -> None:
    rows = {}
    for name, run in runs.items():
        best = run.summary["best-accuracy"]
        rows[name] = [
            str(run.summary["rounds"]),
            "-" if best is None else f"{best:.4f}",
            *_traffic(run.history[-1]),
            f"{run.summary['seconds']:.0f}",
            *_link_time(run.history, link),
        ]
    headings = ["rounds", "best", "up", "down", "seconds", *(["link"] if link else [])]
    _print_table("whole runs", headings, rows)


def _print_until(target: float, runs: Mapping[str, "FinishedRun"], link: Link | None) -> None:
    from fedavg_app.results.rounds_to_target import accuracy_curve, rounds_to_target

    rows = {}
    headings = ["rounds", "up", "down", "seconds", *(["link"] if link else [])]
    for name, run in runs.items():
        reached = rounds_to_target(accuracy_curve(run.history), target)
        if reached is None:
            rows[name] = ["-"] * len(headings)
            continue
        last = next(place for place, one in enumerate(run.history) if (one.accuracy or 0) >= target)
        until = run.history[: last + 1]
        seconds = sum(metrics.seconds for metrics in until)
        rows[name] = [
            f"{reached:.1f}", *_traffic(until[-1]), f"{seconds:.0f}", *_link_time(until, link)
        ]  # fmt: skip
    _print_table(f"to accuracy {target:g}", headings, rows)


def _print_table(title: str, headings: list[str], rows: Mapping[str, list[str]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("run", title=title, title_justify="left")
    table.columns[0].overflow = "fold"
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for name, cells in rows.items():
        table.add_row(name, *cells)
    Console(highlight=False, markup=False).print(table)


def _link_time(history: "Sequence[RoundMetrics]", link: Link | None) -> list[str]:
    """Return the time over the link, in the largest unit that gives two digits; none for none."""
    if link is None:
        return []
    seconds = link_seconds(history, link)
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 10 * size:
            return [f"{seconds / size:.0f} {unit}"]
    return [f"{seconds / 60:.1f} min"] if seconds >= 60 else [f"{seconds:.1f} s"]


def _traffic(metrics: "RoundMetrics") -> list[str]:
    """Return the bytes up and down by the end of a round."""
    from rich.filesize import decimal

    return [decimal(int(metrics.total.get(key, 0))) for key in ("bytes_up", "bytes_down")]
