"""The command `sweep`: the runs of a grid, and their comparison."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from fedavg_app.cli.compare import compare
from tasks.objective import Objective


def sweep(
    grid: Annotated[Path, typer.Argument(help="a TOML file: keys of the run config, with lists")],
    *,
    folder: Annotated[
        Path | None,
        typer.Option("--run-dir", help="the runs go here; by default sweeps/NAME for NAME.toml"),
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="a directory with the data set's canonical files")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="runs at a time, which share the cores")] = 1,
    target: Annotated[
        float | None,
        typer.Option(help="compare rounds, bytes, time to this accuracy, or other objective"),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="draw the comparison into this file: .png, .pdf or .svg")
    ] = None,
) -> None:
    """Run all combinations of a grid's values, and compare them.

    The same command continues an interrupted sweep: finished runs are skipped, and others resume
    from their last checkpoint, written every minute, or as the grid says. A finished run leaves no
    checkpoint.
    """
    from fedavg_app.callbacks.figures import check_plot_path
    from fedavg_app.results.checkpoint import delete_checkpoint
    from fedavg_app.results.comparison_names import write_names
    from fedavg_app.results.finished_run import read_summary
    from fedavg_app.sweep.grid import read_grid
    from fedavg_app.sweep.planned_run import finished_folder
    from fedavg_app.sweep.run_all import run_all
    from fedavg_app.sweep.run_process import RunProcess, shared_launcher

    if plot is not None:
        check_plot_path(plot)
    planned = read_grid(grid)
    folder = folder or Path("sweeps") / grid.stem
    write_names(folder, {run.slug: run.method for run in planned})

    def keep(job: RunProcess) -> tuple[bool, str]:
        left = job.result()
        if left is None:
            return False, f"failed: {job.last_line()}"
        delete_checkpoint(left)
        return True, describe(read_summary(left))

    ended = {run.slug: finished_folder(folder / run.slug) for run in planned}
    for left in filter(None, ended.values()):
        delete_checkpoint(left)  # of a run that came to its end as its sweep was ended
    missing = [run for run in planned if ended[run.slug] is None]
    with shared_launcher(data_dir, jobs) as launch:
        run_all(grid.stem, missing, len(planned), folder, launch, keep, jobs)
    results = [finished_folder(folder / run.slug) for run in planned]
    compare([path for path in results if path is not None], target=target, plot=plot)


def describe(summary: Mapping[str, Any]) -> str:
    """Return how a run ended in a few words, from its ``summary.json``."""
    parts = [f"{summary['status']} after round {summary['rounds']}"]
    objective = Objective.parse(summary.get("objective", str(Objective())))
    name = objective.name
    if summary[f"best-{name}"] is not None:
        best, final = (objective.shown(summary[f"{which}-{name}"]) for which in ("best", "final"))
        parts.append(f"{name} {best} at best, {final} at last")
    if summary["rounds-to-target"] is not None:
        parts.append(f"{summary['rounds-to-target']:.1f} rounds to {summary[f'target-{name}']:g}")
    return ", ".join(parts)
