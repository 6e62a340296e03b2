"""The command `partition`: each client's training examples by class."""

from pathlib import Path
from typing import Annotated

import typer

from fedavg_app.cli.options import with_config
from fedavg_app.config import RunConfig, with_clients


@with_config(RunConfig)
def show_partition(
    config: RunConfig,
    *,
    plot: Annotated[
        Path | None,
        typer.Option(
            help="draw the figure into this file: .png, .pdf or .svg",
            rich_help_panel="Output",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Show each client's training examples by class; the keys are those of run."""
    from fedavg_app.cli.distribution_report import show

    show(with_clients(config), plot)
