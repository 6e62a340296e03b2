"""A run on virtual clients: the ServerApp on a `RayGrid`."""

from collections.abc import Sequence
from typing import Literal

from fedavg_app.callbacks.base import MakeCallback
from fedavg_app.config import RunConfig, check_config, with_clients
from fedavg_app.ray_engine.ray_cluster import ray_cluster
from fedavg_app.server.metrics import TrainingResult


def simulate(
    config: RunConfig,
    num_workers: int = 0,
    gpus_per_worker: float | Literal["auto"] = "auto",
    ray_address: str = "",
    state_memory: float = 1024,
    callbacks: Sequence[MakeCallback] = (),
) -> TrainingResult:
    """Run the app on virtual clients; results go to a new folder in the config's run-dir.

    Args:
        config: The run's settings.
        num_workers: How many Ray actors; 0 means one per CPU core.
        gpus_per_worker: The share of a GPU that each actor reserves; "auto" divides the GPUs
            evenly where the config's device admits them.
        ray_address: A Ray cluster to join; empty starts Ray on this machine.
        state_memory: MiB of clients' states that each actor keeps in memory.
        callbacks: Make the callbacks beside the run directory, the console and the checkpoints.

    Raises:
        ConfigError, DataError, RunError: See `fedavg_app.server_app.run`.
    """
    config = check_config(with_clients(config))
    run_config = config.model_dump(by_alias=True, include=set(RunConfig.model_fields))
    with ray_cluster(ray_address, num_workers, gpus_per_worker, config.device) as resources:
        # Not at the top: they import torch, which `ray_cluster` does while Ray starts.
        from fedavg_app.ray_engine.joint_training_check import check_joint_training
        from fedavg_app.ray_engine.ray_grid import RayGrid
        from fedavg_app.server.run_components import resolve
        from fedavg_app.server_app import run

        components = resolve(config)
        if config.clients_per_batch > 1:
            check_joint_training(config, components)
        with RayGrid(
            run_config,
            config.num_clients,
            resources.workers,
            resources.gpus_per_worker,
            int(state_memory * 2**20),
        ) as grid:
            return run(grid, config, components, grid.evaluation, callbacks)
