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

RESULTS, BOARDS = Path("results"), Path("paper/boards")
Results = Annotated[
    Path, typer.Option(file_okay=False, help="the folder of results and their records")
]
Boards = Annotated[Path, typer.Option(exists=True, file_okay=False, help="the folder of boards")]
DataDir = Annotated[
    Path | None,
    typer.Option(exists=True, file_okay=False, help="a directory with the canonical files"),
]


@app.command()
def sweep(
    experiment: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, help="the experiment's TOML file")
    ],
    *,
    boards: Annotated[Path, typer.Option(help="the folder of boards")] = BOARDS,
    results: Results = RESULTS,
    data_dir: DataDir = None,
    jobs: Annotated[int, typer.Option(min=0, help="runs at a time; 0 is one per core")] = 0,
) -> None:
    """Run what is missing of an experiment: a table of a paper as a file in paper/experiments/.

    A file whose key "board" names a board enters its rows there.
    """
    from fedavg_app.ray_engine.ray_cluster import usable_cpus
    from fedavg_app.sweep.run_process import shared_launcher
    from paper.boards import load_table
    from paper.sweep import check_data
    from paper.sweep import sweep as run_missing

    loaded, jobs = load_table(experiment, boards), jobs or usable_cpus()
    if loaded.board:
        check_data(loaded, data_dir)
    with shared_launcher(data_dir, jobs) as launch:
        run_missing(loaded, results, launch, jobs)


@app.command()
def report(
    *,
    experiments: Annotated[
        Path, typer.Option(exists=True, file_okay=False, help="the folder of experiments")
    ] = Path("paper/experiments"),
    results: Results = RESULTS,
    title: Annotated[
        str, typer.Option(help="the page's title, without the text about the papers")
    ] = "",
) -> None:
    """Write the page that shows all results next to the papers' numbers, and its pictures."""
    from paper.report import write_report

    typer.echo(f"report: {write_report(experiments, results, title)}")


@app.command()
def board(*, boards: Boards = BOARDS, results: Results = RESULTS) -> None:
    """Write the page of the boards: methods by the bytes that they send to fixed accuracies."""
    from paper.board_page import write_page

    typer.echo(f"boards: {write_page(boards, results)}")


if __name__ == "__main__":
    sys.exit(run_command_line(app))
