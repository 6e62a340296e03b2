"""A run on virtual clients: the ServerApp on a `RayGrid`."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Literal

from fedavg_app.callbacks.base import Callback, MakeCallback
from fedavg_app.config import RunConfig, with_clients
from fedavg_app.ray_engine.ray_cluster import check_reachable, ray_cluster
from fedavg_app.ray_engine.status_line import StatusLine
from fedavg_app.results.history import TrainingResult
from fedavg_app.server.preparation import check_names, prepare


class EndOfWorkers(Callback):
    """A callback that ends the workers once nothing is left to train.

    Args:
        end: Ends them.
    """

    def __init__(self, end: Callable[[], object]) -> None:
        self._end = end

    def on_train_end(self, _: TrainingResult) -> None:
        """End the workers."""
        self._end()


def simulate(
    config: RunConfig,
    num_workers: int = 0,
    gpus_per_worker: float | Literal["auto"] = "auto",
    ray_address: str = "",
    callbacks: Sequence[MakeCallback] = (),
) -> TrainingResult:
    """Run the app on virtual clients; results go to a new folder in the config's run-dir.

    Args:
        config: The run's settings.
        num_workers: How many Ray actors; 0 means one per usable CPU.
        gpus_per_worker: The share of a GPU that each actor reserves; "auto" divides the GPUs
            evenly where the config's device admits them.
        ray_address: A Ray cluster to join; empty starts Ray on this machine, or takes the one that
            ``ray.init()`` has started.
        callbacks: Make further callbacks, beside the run's files and the console.

    Raises:
        ConfigError, DataError, RunError: As `prepare`, `ray_cluster` and
            `fedavg_app.server_app.run` do.
    """
    config = with_clients(config)
    run_config = config.model_dump(by_alias=True, include=set(RunConfig.model_fields))
    check_names(config)
    check_reachable(ray_address)
    # Ray and its workers start while this process imports torch and loads the data, and end while
    # the other callbacks draw curves.
    with ThreadPoolExecutor(1) as background, ExitStack() as ray, ExitStack() as actors:
        cluster = ray_cluster(ray_address, num_workers, gpus_per_worker, config.device)
        started = ray.enter_context(cluster)
        with StatusLine() as tell:
            prepared = prepare(config, tell)
            # Not at the top: they import torch.
            from fedavg_app.ray_engine.ray_grid import RayGrid
            from fedavg_app.server_app import run

            tell(f"starting workers on Ray at {ray_address}" if ray_address else "starting workers")
            workers, gpu_share = started()
            grid = RayGrid(
                run_config, config.num_clients, workers, gpu_share, prepared.told(),
                prepared.check_digests,
            )  # fmt: skip
            actors.enter_context(grid).numbered_nodes()

        def end_workers() -> None:
            actors.close()
            actors.callback(background.submit(ray.close).result)

        ending = EndOfWorkers(end_workers)
        return run(grid, prepared, grid.evaluation, [lambda _: ending, *callbacks])
