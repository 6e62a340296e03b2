"""Ray for one run: started on this machine or joined, and shared out among workers."""

import logging
import math
import os
import socket
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Literal

import ray

from fedavg_app.errors import ConfigError

CONNECT_SECONDS = 5


@dataclass(frozen=True)
class Share:
    """How many workers there are, and the share of a GPU that each reserves."""

    workers: int
    gpus_per_worker: float


@contextmanager
def cluster(
    address: str, num_workers: int, gpus_per_worker: float | Literal["auto"], device: str
) -> Iterator[Share]:
    """Use Ray inside, and leave no process of it behind.

    Args:
        address: A cluster to join; empty starts Ray on this machine.
        num_workers: 0 means one per CPU of the cluster.
        gpus_per_worker: "auto" puts equally many workers on every GPU.
        device: The run config's; "cpu" reserves no GPU.

    Raises:
        ConfigError: The cluster cannot be reached, or has not what the workers need.
    """
    _check_reachable(address)
    # Ray's own tip about a default that will change; here an actor without a share sees no GPU.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "1")
    warnings.filterwarnings("ignore", "Tip: In future versions of Ray", FutureWarning)
    # Ray's processes end with the thread that started them: it stays until the run is over.
    with ThreadPoolExecutor(1) as background:
        started = background.submit(_start, address, num_workers)
        # Ray's start is mostly waiting; torch, which everything needs, is imported meanwhile.
        import_module("torch")
        try:
            started.result()
        except (ConnectionError, RuntimeError, ValueError) as error:
            if not address:
                raise
            fix = f"cannot join this cluster: {str(error).splitlines()[0]}"
            raise ConfigError("ray-address", address, fix) from error
        try:
            yield _share(num_workers, gpus_per_worker, device)
        finally:
            ray.shutdown()


def _check_reachable(address: str) -> None:
    """Check that somebody listens there: Ray itself would try for ever."""
    host, colon, port = address.rpartition(":")
    if not colon or "/" in host:
        return
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    except (OSError, ValueError) as error:
        fix = f"cannot be reached ({error}); give HOST:PORT of `ray start --head`"
        raise ConfigError("ray-address", address, fix) from error


def _start(address: str, num_workers: int) -> None:
    ray.init(
        address=address or "local",
        num_cpus=None if address else num_workers or None,
        include_dashboard=None if address else False,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )


def _share(num_workers: int, gpus_per_worker: float | Literal["auto"], device: str) -> Share:
    resources = ray.cluster_resources()  # type: ignore[no-untyped-call]
    cpus, gpus = int(resources.get("CPU", 1)), int(resources.get("GPU", 0))
    workers = num_workers or cpus
    if workers > cpus:
        raise ConfigError("num-workers", workers, f"the cluster has {cpus} CPUs, one per worker")
    if device == "cpu":
        gpus = 0
    if gpus_per_worker == "auto":
        return Share(workers, 1 / math.ceil(workers / gpus) if gpus else 0.0)
    # A worker sits on one GPU, or on several whole ones.
    per_gpu = math.floor(1 / gpus_per_worker + 1e-9) if gpus_per_worker else math.inf
    if gpus_per_worker and workers > gpus * per_gpu:
        fix = f"{workers} workers need more than the cluster's {gpus} GPUs"
        raise ConfigError("gpus-per-worker", gpus_per_worker, fix)
    return Share(workers, float(gpus_per_worker))
