"""Federated learning simulations from Python, without a SuperLink: see `simulation.py --help`."""

import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_settings import CliApp, CliImplicitFlag, CliPositionalArg, CliSubCommand

from fedavg_app import tensorboard_log
from fedavg_app.config import (
    CentralConfig,
    RunConfig,
    check_config,
    check_names,
    config_error,
    kebab,
)
from fedavg_app.errors import USER_ERRORS
from fedavg_app.history import Listen

KEBAB = ConfigDict(alias_generator=kebab)


class Watched(BaseModel):
    """Whether a training can be watched while it goes."""

    tensorboard: CliImplicitFlag[bool] = Field(
        False, description="write a log for TensorBoard to the run's folder while it goes"
    )

    def listeners(self) -> list[Listen]:
        """Return who is told of the rounds."""
        if self.tensorboard:
            tensorboard_log.check()
        return [tensorboard_log.TensorBoardLog] if self.tensorboard else []


class Workers(Watched):
    """The Ray actors that a run has."""

    num_workers: int = Field(0, ge=0, description="Ray actors; 0 means one per CPU core")
    gpus_per_worker: Annotated[float, Field(ge=0)] | Literal["auto"] = Field(
        "auto", description="the share of a GPU each actor reserves; auto divides what there is"
    )
    ray_address: str = Field("", description="join this Ray cluster instead of starting Ray here")

    state_memory: float = Field(
        1024, gt=0, description="MiB of clients' states a worker keeps in memory; more go to disk"
    )

    def work(self, config: RunConfig) -> None:
        """Run the config on them."""
        simulate(
            config,
            self.num_workers,
            self.gpus_per_worker,
            self.ray_address,
            self.state_memory,
            self.listeners(),
        )


class Run(RunConfig, Workers):
    """Train one federated model on local Ray actors; the keys are those of `flwr run -c`."""

    def cli_cmd(self) -> None:
        """Run it."""
        check_config(self)
        self.work(self)


class Resume(Workers):
    """Go on with a run from its last checkpoint, in the same folder."""

    model_config = KEBAB

    folder: CliPositionalArg[str] = Field(description="the run's folder")
    num_server_rounds: int = Field(0, ge=0, description="rounds at the most; 0 means as before")

    def cli_cmd(self) -> None:
        """Go on with it."""
        from fedavg_app.checkpoint import saved_config

        changes: dict[str, str | int] = {"resume": self.folder}
        if self.num_server_rounds:
            changes["num_server_rounds"] = self.num_server_rounds
        config = saved_config(self.folder).model_copy(update=changes)
        self.work(config)


class Central(CentralConfig, Watched):
    """Train the same model by SGD on the pooled data, a baseline; a round is one step of it."""

    def cli_cmd(self) -> None:
        """Train."""
        from fedavg_app.central import train
        from fedavg_app.parts import load_task

        config = CentralConfig(**self.model_dump(include=set(CentralConfig.model_fields)))
        train(config, load_task(config), self.listeners())


class Partition(RunConfig):
    """Show which client has how many training examples of what; the keys are those of run."""

    plot: str = Field("", description="write a picture to this PNG file")

    def cli_cmd(self) -> None:
        """Print the table; draw the picture."""
        check_config(self)
        from fedavg_app.holdings import show

        show(self, Path(self.plot) if self.plot else None)


class Sweep(BaseModel):
    """Run what is missing of an experiment: a table of a paper as a file in experiments/."""

    model_config = KEBAB

    experiment: CliPositionalArg[Path] = Field(description="the experiment's TOML file")
    results: Path = Field(Path("results"), description="where records are and new ones go")
    data_dir: str = Field("", description="a directory with the data set's canonical files")
    jobs: int = Field(0, ge=0, description="runs at a time; 0 means one per CPU core")
    budget_minutes: Annotated[float, Field(ge=0)] | None = Field(
        None, description="when to end; runs in progress go on the next time"
    )
    adopt: Path | None = Field(
        None, description="take in the runs of the experiment whose folders are in this one, first"
    )

    def cli_cmd(self) -> None:
        """Run them."""
        from fedavg_app.reproduction.experiments import load
        from fedavg_app.reproduction.jobs import launcher
        from fedavg_app.reproduction.sweep import adopt, sweep

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
        from fedavg_app.reproduction.report import write_report

        output = self.output or self.results / "report.html"
        write_report(self.experiments, self.results, output, self.data_dir)
        print(f"report: {output}")  # noqa: T201


class Simulation(BaseModel):
    """Communication-efficient federated learning on Flower."""

    run: CliSubCommand[Run]
    resume: CliSubCommand[Resume]
    central: CliSubCommand[Central]
    partition: CliSubCommand[Partition]
    sweep: CliSubCommand[Sweep]
    report: CliSubCommand[Report]

    def cli_cmd(self) -> None:
        """Run the subcommand."""
        CliApp.run_subcommand(self)


def simulate(
    config: RunConfig,
    num_workers: int = 0,
    gpus_per_worker: float | Literal["auto"] = "auto",
    ray_address: str = "",
    state_memory: float = 1024,
    listeners: Sequence[Listen] = (),
) -> None:
    """Run the app on virtual clients; results go to a new folder in the config's run-dir.

    Args:
        config: The run's settings.
        num_workers: How many Ray actors; 0 means one per CPU core.
        gpus_per_worker: The share of a GPU that each actor reserves; "auto" divides the GPUs
            evenly where the config's device admits them.
        ray_address: A Ray cluster to join; empty starts Ray on this machine.
        state_memory: MiB of clients' states that each actor keeps in memory.
        listeners: Each is told of the rounds, see `fedavg_app.history.Listener`.

    Raises:
        ConfigError, DataError, RunError: See `fedavg_app.server_app.run`.
    """
    check_names(config)  # a wrong one must not cost the start of Ray

    from fedavg_app.engine.cluster import cluster

    run_config = config.model_dump(by_alias=True, include=set(RunConfig.model_fields))
    with cluster(ray_address, num_workers, gpus_per_worker, config.device) as share:
        from fedavg_app.engine.grid import RayGrid
        from fedavg_app.parts import load_parts
        from fedavg_app.server_app import run

        load_parts(config)
        memory = int(state_memory * 2**20)
        workers = (config.num_clients, share.workers, share.gpus_per_worker, memory)
        with RayGrid(run_config, *workers) as grid:
            run(grid, run_config, grid.evaluation, listeners)


class _StderrHandler(logging.Handler):
    """Writes to what stderr is now: the live display puts itself there to keep lines apart."""

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), file=sys.stderr)  # noqa: T201


def main() -> int:
    """Parse the command line and run; return the exit status."""
    handler = _StderrHandler()
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("ray").setLevel(logging.ERROR)
    logging.getLogger("flwr").setLevel(logging.WARNING)
    # Ended by whatever signal, a run ends its processes.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        CliApp.run(Simulation)
    except ValidationError as error:
        print(f"error: {config_error(error)}", file=sys.stderr)  # noqa: T201
        return 2
    except USER_ERRORS as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)  # noqa: T201
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
