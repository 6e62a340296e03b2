"""Ray for one run: started on this machine or joined, with its resources divided among workers."""

import ctypes
import logging
import math
import os
import signal
import socket
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Literal

from fedavg_app import own_folder
from fedavg_app.errors import ConfigError, RunError

CONNECT_SECONDS = 5
# Ray starts within seconds; if it has not ended this long after a signal, it never will.
STUCK_SECONDS = 20.0
# Ray's processes import these while the driver prepares the run.
PRELOADED = "fedavg_app.ray_engine.worker"


# How many workers there are, and the share of a GPU that each reserves.
WorkerResources = tuple[int, float]


@contextmanager
def ray_cluster(
    address: str, num_workers: int, gpus_per_worker: float | Literal["auto"], device: str
) -> "Iterator[Future[WorkerResources]]":
    """Start or join Ray in the background, and leave no process of it behind.

    It yields the workers' resources, which are there once Ray has started, or one of these errors:

    - ConfigError: The cluster cannot be joined, or has fewer resources than the workers need.
    - RunError: Ray cannot start.

    Args:
        address: A cluster to join that `check_reachable` has passed; empty starts Ray on this
            machine, or takes the one that this process has joined or started, and leaves it there.
        num_workers: 0 means one per CPU: of the cluster, or that this process may use.
        gpus_per_worker: "auto" puts equally many workers on every GPU.
        device: The run config's; "cpu" reserves no GPU.
    """
    # Ray's processes end with the thread that started them, so that thread lives until the run is
    # over.
    with ThreadPoolExecutor(1) as background:
        starting = background.submit(_start, address, num_workers)

        def resources() -> WorkerResources:
            try:
                starting.result()
            except Exception as error:  # Ray raises just that where its processes take too long
                reason = str(error).partition("\n")[0]
                if not address:
                    if isinstance(error, PermissionError):  # another user's /tmp/ray
                        reason += "; name a folder of your own by RAY_TMPDIR"
                    raise RunError(f"Ray cannot start on this machine: {reason}") from error
                fix = f"cannot join this cluster: {reason}"
                raise ConfigError("ray-address", address, fix) from error
            return _worker_resources(num_workers, gpus_per_worker, device)

        try:
            yield background.submit(resources)
        except (KeyboardInterrupt, SystemExit) as error:  # a signal
            if not wait([starting], STUCK_SECONDS).done:
                # It has interrupted an import or a logging call here, which keeps a lock that Ray's
                # start waits for. Ray's processes end by themselves.
                status = error.code if isinstance(error, SystemExit) else None
                os._exit(status if isinstance(status, int) else 128 + signal.SIGINT)
            raise
        finally:
            if starting.exception() is None and starting.result():
                import ray

                ray.shutdown()


@contextmanager
def shared_ray(num_workers: int) -> Iterator[Callable[[], str]]:
    """Yield what returns the address of a Ray, for the option ``--ray-address`` of runs.

    Ray starts with the first call, which may raise a RunError, and ends with the context. Where
    there is a GPU the address is empty, and runs start Ray themselves: each divides the GPUs it
    finds among its own workers, and would wait for those that another run has.

    Args:
        num_workers: The workers of all runs that run at the same time.
    """
    with ExitStack() as stack:

        @cache
        def address() -> str:
            import ray

            stack.enter_context(ray_cluster("", num_workers, 0.0, "cpu")).result()
            has_gpu = ray.cluster_resources().get("GPU", 0)  # type: ignore[no-untyped-call]
            return "" if has_gpu else ray.get_runtime_context().gcs_address

        yield address


def check_reachable(address: str) -> None:
    """Check that the address accepts connections: Ray itself would retry without end.

    Raises:
        ConfigError: It does not.
    """
    host, colon, port = address.rpartition(":")
    if not colon or "/" in host:
        return
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    except (OSError, ValueError) as error:
        fix = f"cannot be reached ({error}); give HOST:PORT of `ray start --head`"
        raise ConfigError("ray-address", address, fix) from error


def usable_cpus() -> int:
    """Return how many CPUs this process has by its affinity and its container's quota."""
    import joblib  # type: ignore[import-untyped]

    return int(joblib.cpu_count())


def _start(address: str, num_workers: int) -> bool:
    """Start Ray or join it, and return True; False where this process has one, which is used."""
    # Silences Ray's tip about a default that will change; an actor without a GPU share sees no GPU.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "1")
    os.environ.setdefault("RAY_preload_python_modules", PRELOADED)
    warnings.filterwarnings("ignore", "Tip: In future versions of Ray", FutureWarning)
    import ray  # takes a second

    if ray.is_initialized() and not address:
        return False
    with _own_sigterm_handler(), _own_package_first():
        ray.init(
            address=address or "local",
            num_cpus=None if address else num_workers or usable_cpus(),
            include_dashboard=None if address else False,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    return True


@contextmanager
def _own_package_first() -> Iterator[None]:
    """Let processes that start meanwhile, and theirs, import the package that is in use here.

    Ray's workers preload it before Ray tells them this process's path. Without this they would
    import an installed package where this is a checkout's.
    """
    folder, before = own_folder(), os.environ.get("PYTHONPATH")
    # Installed packages are found anyway, and must not come before the standard library.
    if folder is not None and folder.name not in ("site-packages", "dist-packages"):
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(folder), before)))
    try:
        yield
    finally:
        os.environ.pop("PYTHONPATH", None)
        if before is not None:
            os.environ["PYTHONPATH"] = before


@contextmanager
def _own_sigterm_handler() -> Iterator[None]:
    """Undo what Ray's start does to SIGTERM: it would print a report and abort this process.

    Python sets handlers in the main thread only, which is busy meanwhile.
    """
    get_handler, set_handler = ctypes.pythonapi.PyOS_getsig, ctypes.pythonapi.PyOS_setsig
    get_handler.restype = set_handler.restype = ctypes.c_void_p
    before = ctypes.c_void_p(get_handler(signal.SIGTERM))
    try:
        yield
    finally:
        set_handler(signal.SIGTERM, before)


def _worker_resources(
    num_workers: int, gpus_per_worker: float | Literal["auto"], device: str
) -> WorkerResources:
    import ray

    resources = ray.cluster_resources()  # type: ignore[no-untyped-call]
    cpus, gpus = int(resources.get("CPU", 0)), int(resources.get("GPU", 0))
    workers = num_workers or max(cpus, 1)
    if workers > cpus:
        raise ConfigError("num-workers", workers, f"the cluster has {cpus} CPUs, one per worker")
    if device == "cpu":
        gpus = 0
    if gpus_per_worker == "auto":
        return workers, 1 / math.ceil(workers / gpus) if gpus else 0.0
    if gpus_per_worker > 1 and gpus_per_worker % 1:
        raise ConfigError("gpus-per-worker", gpus_per_worker, "give a share up to 1, or whole GPUs")
    # A worker uses a part of one GPU, or several whole ones.
    share = gpus_per_worker
    fitting = int(gpus / share) if share > 1 else gpus * int(1 / share + 1e-9) if share else workers
    if workers > fitting:
        fix = f"{workers} workers need more than the cluster's {gpus} GPUs"
        raise ConfigError("gpus-per-worker", gpus_per_worker, fix)
    return workers, float(gpus_per_worker)
