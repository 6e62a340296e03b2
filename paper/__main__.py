"""The command line of the papers' tables: see `python -m paper --help`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from fedavg_app.cli.main import run_command_line

app = typer.Typer(
    name="python -m paper",
    help="Reproduce the tables and figures of the two papers.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


@app.command()
def sweep(
    experiment: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, help="the experiment's TOML file")
    ],
    *,
    results: Annotated[
        Path, typer.Option(file_okay=False, help="the folder of results; records go there")
    ] = Path("results"),
    data_dir: Annotated[
        Path | None,
        typer.Option(
            exists=True, file_okay=False, help="a directory with the data set's canonical files"
        ),
    ] = None,
    jobs: Annotated[
        int, typer.Option(min=0, help="runs at a time; 0 means one per CPU core")
    ] = 0,
) -> None:  # fmt: skip
    """Run what is missing of an experiment: a table of a paper as a file in paper/experiments/."""
    from fedavg_app.ray_engine.ray_cluster import shared_ray, usable_cpus
    from fedavg_app.sweep.run_process import launcher
    from paper.experiments import load
    from paper.sweep import sweep as run_missing

    loaded = load(experiment)
    cores = usable_cpus()
    jobs = jobs or cores
    workers = max(cores // jobs, 1)
    with shared_ray(jobs * workers) as ray_address:
        run_missing(loaded, results, launcher(data_dir, workers, ray_address), jobs)


@app.command()
def report(
    *,
    experiments: Annotated[
        Path, typer.Option(exists=True, file_okay=False, help="the folder of experiments")
    ] = Path("paper/experiments"),
    results: Annotated[
        Path, typer.Option(file_okay=False, help="the folder of their results")
    ] = Path("results"),
    title: Annotated[
        str, typer.Option(help="the page's title, without the text about the papers")
    ] = "",
) -> None:  # fmt: skip
    """Write the page that shows all results next to the papers' numbers, and its pictures."""
    from paper.report import write_report

    typer.echo(f"report: {write_report(experiments, results, title)}")


if __name__ == "__main__":
    sys.exit(run_command_line(app))
