"""Federated learning simulations from Python, without a SuperLink: see `simulation.py --help`."""

import logging
import signal
import sys
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

try:
    from pydantic_settings import CliApp, CliImplicitFlag, CliPositionalArg, CliSubCommand
except ModuleNotFoundError as error:
    sys.exit(f"error: {error.name} is missing; run: pip install 'fedavg-app[simulation]'")

from fedavg_app.callbacks.base import MakeCallback
from fedavg_app.config import CentralConfig, RunConfig, check_config, config_error, kebab
from fedavg_app.errors import USER_ERRORS

logger = logging.getLogger("fedavg_app.simulation")


class WithCallbacks(BaseModel):
    """The options that add callbacks to a training."""

    tensorboard: CliImplicitFlag[bool] = Field(
        False, description="write a log for TensorBoard to the run's folder while it goes"
    )

    def callbacks(self) -> list[MakeCallback]:
        """Return what makes the callbacks; all of them are plots and what the options add."""
        from fedavg_app.callbacks.plots import Plots
        from fedavg_app.callbacks.tensorboard import TensorBoard, check_installed

        if not self.tensorboard:
            return [Plots]
        check_installed()
        return [Plots, TensorBoard]


class WithWorkers(WithCallbacks):
    """The options of the Ray actors that a run has."""

    num_workers: int = Field(0, ge=0, description="Ray actors; 0 means one per CPU core")
    gpus_per_worker: Annotated[float, Field(ge=0)] | Literal["auto"] = Field(
        "auto", description="the share of a GPU each actor reserves; auto divides what there is"
    )
    ray_address: str = Field("", description="join this Ray cluster instead of starting Ray here")

    state_memory: float = Field(
        1024, gt=0, description="MiB of clients' states a worker keeps in memory; more go to disk"
    )

    def simulate(self, config: RunConfig) -> None:
        """Run the config on these workers."""
        # The first line, since what follows takes seconds.
        logger.info(
            "%s", f"joining Ray at {self.ray_address}" if self.ray_address else "starting Ray"
        )
        from fedavg_app.ray_engine.simulation import simulate

        simulate(
            config,
            self.num_workers,
            self.gpus_per_worker,
            self.ray_address,
            self.state_memory,
            self.callbacks(),
        )


class Run(RunConfig, WithWorkers):
    """Train one federated model on local Ray actors; the keys are those of `flwr run -c`."""

    def cli_cmd(self) -> None:
        """Run it."""
        from fedavg_app.plugins import check_names

        config = check_config(RunConfig(**self.model_dump(include=set(RunConfig.model_fields))))
        check_names(config)  # before Ray starts
        self.simulate(config)


class Resume(WithWorkers):
    """Continue a run from its last checkpoint, in the same folder."""

    model_config = ConfigDict(alias_generator=kebab)

    folder: CliPositionalArg[str] = Field(description="the run's folder")
    num_server_rounds: int = Field(0, ge=0, description="rounds at the most; 0 means as before")

    def cli_cmd(self) -> None:
        """Continue it."""
        from fedavg_app.server.checkpointing import saved_config

        changes: dict[str, str | int] = {"resume": self.folder}
        if self.num_server_rounds:
            changes["num_server_rounds"] = self.num_server_rounds
        self.simulate(saved_config(self.folder).model_copy(update=changes))


class Central(CentralConfig, WithCallbacks):
    """Train the same model by SGD on the pooled data, a baseline; a round is one step of it."""

    def cli_cmd(self) -> None:
        """Train."""
        from fedavg_app.server.central_sgd import train_centrally
        from fedavg_app.server.run_components import load_task

        config = CentralConfig(**self.model_dump(include=set(CentralConfig.model_fields)))
        train_centrally(config, load_task(config), self.callbacks())


class Partition(RunConfig):
    """Show each client's training examples by class; the keys are those of run."""

    plot: str = Field("", description="write a picture to this PNG file")

    def cli_cmd(self) -> None:
        """Print the table; draw the picture."""
        from fedavg_app.partitioning.distribution_report import show

        check_config(self)
        show(self, Path(self.plot) if self.plot else None)


class Simulation(BaseModel):
    """Communication-efficient federated learning on Flower."""

    run: CliSubCommand[Run]
    resume: CliSubCommand[Resume]
    central: CliSubCommand[Central]
    partition: CliSubCommand[Partition]

    def cli_cmd(self) -> None:
        """Run the subcommand."""
        CliApp.run_subcommand(self)


class _StderrHandler(logging.Handler):
    """Writes to the current stderr: the live display replaces it to keep lines apart."""

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), file=sys.stderr)  # noqa: T201


def run_command_line(command: type[BaseModel]) -> int:
    """Parse the command line and run its command; return the exit status.

    Errors that a user can act on are one line on stderr.

    Args:
        command: The model of the command line, a `CliApp`.
    """
    handler = _StderrHandler()
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("ray").setLevel(logging.ERROR)
    logging.getLogger("flwr").setLevel(logging.WARNING)
    # Ended by whatever signal, a run ends its processes.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        CliApp.run(command)
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
    sys.exit(run_command_line(Simulation))
