"""The command line of the reproduction: see `python -m reproduction --help`."""

import os
import sys
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from pydantic_settings import (
    CliApp,
    CliPositionalArg,
    CliSubCommand,
    SettingsConfigDict,
)

from fedavg_app.config import kebab
from simulation import run_command_line

KEBAB = ConfigDict(alias_generator=kebab)


class Sweep(BaseModel):
    """Run what is missing of an experiment: a table of a paper as a file in experiments/."""

    model_config = KEBAB

    experiment: CliPositionalArg[Path] = Field(description="the experiment's TOML file")
    results: Path = Field(Path("results"), description="the folder of results; records go there")
    data_dir: str = Field("", description="a directory with the data set's canonical files")
    jobs: int = Field(0, ge=0, description="runs at a time; 0 means one per CPU core")
    budget_minutes: Annotated[float, Field(ge=0)] | None = Field(
        None, description="when to stop; interrupted runs continue the next time"
    )
    adopt: Path | None = Field(
        None, description="first take in the runs of the experiment whose folders are in this one"
    )

    def cli_cmd(self) -> None:
        """Run them."""
        from reproduction.experiments import load
        from reproduction.run_process import launcher
        from reproduction.sweep import adopt, sweep

        experiment = load(self.experiment)
        if self.adopt is not None:
            print(f"adopted: {adopt(experiment, self.results, self.adopt)}")  # noqa: T201
        cores = os.cpu_count() or 1
        jobs = self.jobs or cores
        budget = None if self.budget_minutes is None else 60 * self.budget_minutes
        launch = launcher(self.data_dir, max(cores // jobs, 1))
        sweep(experiment, self.results, launch, jobs, budget)


class Report(BaseModel):
    """Write the page that shows all results next to the papers' numbers, and its pictures."""

    model_config = KEBAB

    experiments: Path = Field(Path("experiments"), description="the folder of experiments")
    results: Path = Field(Path("results"), description="the folder of their results")
    output: Path | None = Field(None, description="the HTML file; else report.html in results")
    data_dir: str = Field("", description="MNIST's canonical files, for pictures of partitions")

    def cli_cmd(self) -> None:
        """Write it."""
        from reproduction.report import write_report

        output = self.output or self.results / "report.html"
        write_report(self.experiments, self.results, output, self.data_dir)
        print(f"report: {output}")  # noqa: T201


class Reproduction(BaseModel):
    """Reproduce the tables and figures of the two papers."""

    model_config = SettingsConfigDict(cli_prog_name="python -m reproduction")

    sweep: CliSubCommand[Sweep]
    report: CliSubCommand[Report]

    def cli_cmd(self) -> None:
        """Run the subcommand."""
        CliApp.run_subcommand(self)


if __name__ == "__main__":
    sys.exit(run_command_line(Reproduction))
