"""A run on virtual clients: the ServerApp on a `RayGrid`."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from threading import RLock, Timer
from typing import Literal

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from fedavg_app.callbacks.base import Callback, MakeCallback
from fedavg_app.config import RunConfig, with_clients
from fedavg_app.ray_engine.ray_cluster import check_reachable, ray_cluster
from fedavg_app.results.checkpoint import check_run_folder
from fedavg_app.results.history import TrainingResult
from fedavg_app.server.preparation import load_data, prepare, resolve
from strategies.rounds.flower_arrays import records_bytes

# Nothing is shown of a run that starts sooner.
SILENT_SECONDS = 2.0
# This process trains no larger model while workers start: handing over the clients' states, several
# models each, would take longer than it gains.
MAX_BYTES_HERE = 32 * 2**20


class StatusLine:
    """A context manager that shows the step that it was told last: live on a terminal, else a line.

    Args:
        console: Where to print; by default stdout.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(soft_wrap=True, highlight=False, markup=False)
        columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
        self._live = Progress(*columns, console=self._console, transient=True)
        self._task = self._live.add_task("starting")
        self._shown, self._lock = False, RLock()
        self._timer = Timer(SILENT_SECONDS, self._show)

    def __enter__(self) -> "StatusLine":
        """Begin to wait for what takes long."""
        self._timer.start()
        return self

    def __call__(self, step: str) -> None:
        """Say what is done from now on."""
        with self._lock:
            self._live.update(self._task, description=step)
            self._print()

    def __exit__(self, *_: object) -> None:
        """Leave nothing on a terminal."""
        self._timer.cancel()
        self._timer.join()
        if self._console.is_terminal:
            self._live.stop()

    def _show(self) -> None:
        with self._lock:
            self._shown = True
            if self._console.is_terminal:
                self._live.start()
            self._print()

    def _print(self) -> None:
        if self._shown and not self._console.is_terminal:
            self._console.print(self._live.tasks[0].description)


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
    check_run_folder(config)
    check_reachable(ray_address)
    # Ray and its workers start while this process loads the data, and end while the other callbacks
    # draw curves.
    with ThreadPoolExecutor(1) as background, ExitStack() as ray, ExitStack() as actors:
        with StatusLine() as tell:
            tell(f"checking the settings of {config.strategy} on {config.task}")
            components, data = resolve(config), None
            if config.data_dir:  # Ray takes seconds to start: what is wrong is said before
                tell(f"loading the data of {components.task.name}")
                data = load_data(config, components.task)
            cluster = ray_cluster(ray_address, num_workers, gpus_per_worker, config.device)
            started = ray.enter_context(cluster)
            prepared = prepare(config, tell, components, data)
            # Not at the top: they import torch.
            from fedavg_app.ray_engine.ray_grid import RayGrid
            from fedavg_app.server_app import run

            # A deadline interrupts the main thread of a process, and shares of a GPU are Ray's.
            timed = config.round_timeout and not config.links
            small = records_bytes([prepared.model.sent, prepared.model.fixed]) <= MAX_BYTES_HERE
            on_cpu = config.torch_device.type == "cpu"
            here = not ray_address and not timed and small and on_cpu
            tell(f"starting workers on Ray at {ray_address}" if ray_address else "starting workers")
            workers, share, later = (0, 0.0, started) if here else (*started.result(), None)
            grid = RayGrid(
                run_config, config.num_clients, workers, share, prepared.told(),
                prepared.check_digests, later,
            )  # fmt: skip
            actors.enter_context(grid).numbered_nodes()

        def end_workers() -> None:
            actors.close()
            actors.callback(background.submit(ray.close).result)

        ending = EndOfWorkers(end_workers)
        return run(grid, prepared, grid.evaluation, [lambda _: ending, *callbacks])
