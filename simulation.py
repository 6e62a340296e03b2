"""Federated learning simulations from Python, without a SuperLink: see `simulation.py --help`."""

import logging
import signal
import sys
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, Field, ValidationError
from pydantic_settings import CliApp, CliSubCommand

from fedavg_app.config import CentralConfig, RunConfig, check_config, check_names, config_error
from fedavg_app.errors import USER_ERRORS


class Run(RunConfig):
    """Train one federated model on local Ray actors; the keys are those of `flwr run -c`."""

    num_workers: int = Field(0, ge=0, description="Ray actors; 0 means one per CPU core")
    gpus_per_worker: Annotated[float, Field(ge=0)] | Literal["auto"] = Field(
        "auto", description="the share of a GPU each actor reserves; auto divides what there is"
    )
    ray_address: str = Field("", description="join this Ray cluster instead of starting Ray here")

    state_memory: float = Field(
        1024, gt=0, description="MiB of clients' states a worker keeps in memory; more go to disk"
    )

    def cli_cmd(self) -> None:
        """Run it."""
        check_config(self)
        simulate(self, self.num_workers, self.gpus_per_worker, self.ray_address, self.state_memory)


class Central(CentralConfig):
    """Train the same model by SGD on the pooled data, a baseline; a round is one step of it."""

    def cli_cmd(self) -> None:
        """Train."""
        from fedavg_app.central import train
        from fedavg_app.parts import load_task

        train(self, load_task(self))


class Partition(RunConfig):
    """Show which client has how many training examples of what; the keys are those of run."""

    plot: str = Field("", description="write a picture to this PNG file")

    def cli_cmd(self) -> None:
        """Print the table; draw the picture."""
        check_config(self)
        from fedavg_app.holdings import show

        show(self, Path(self.plot) if self.plot else None)


class Simulation(BaseModel):
    """Communication-efficient federated learning on Flower."""

    run: CliSubCommand[Run]
    central: CliSubCommand[Central]
    partition: CliSubCommand[Partition]

    def cli_cmd(self) -> None:
        """Run the subcommand."""
        CliApp.run_subcommand(self)


def simulate(
    config: RunConfig,
    num_workers: int = 0,
    gpus_per_worker: float | Literal["auto"] = "auto",
    ray_address: str = "",
    state_memory: float = 1024,
) -> None:
    """Run the app on virtual clients; results go to a new folder in the config's run-dir.

    Args:
        config: The run's settings.
        num_workers: How many Ray actors; 0 means one per CPU core.
        gpus_per_worker: The share of a GPU that each actor reserves; "auto" divides the GPUs
            evenly where the config's device admits them.
        ray_address: A Ray cluster to join; empty starts Ray on this machine.
        state_memory: MiB of clients' states that each actor keeps in memory.

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
            run(grid, run_config, grid.evaluation)


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
