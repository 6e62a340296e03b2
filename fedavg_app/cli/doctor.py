"""The command `doctor`: what is installed and available here, and how to get the rest."""

import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table

PACKAGES = ("flwr", "torch", "torchvision", "numpy", "ray", "flwr-datasets", "matplotlib")


# Whether a thing is there (None if optional and missing), what was found, and what to do.
Finding = tuple[bool | None, str, str]


def doctor() -> None:
    """Check what is installed and available: packages, data, Ray, a GPU."""
    console = Console(highlight=False, markup=False)
    failed = False
    for look in (_packages, _flower, _data, _ray, _gpu, _proxy):
        for ok, text, fix in look():
            mark = {True: "ok     ", False: "missing", None: "-      "}[ok]
            line = Table.grid(padding=(0, 1))
            line.add_row(mark, f"{text}; {fix}" if fix else text)
            console.print(line)
            failed |= ok is False
    if failed:
        raise typer.Exit(1)


def _packages() -> Iterator[Finding]:
    yield True, f"Python {platform.python_version()}, {os.cpu_count()} cores", ""
    for name in PACKAGES:
        try:
            yield True, f"{name} {version(name)}", ""
        except PackageNotFoundError:
            yield False, name, "run: pip install 'fedavg-app[simulation]'"
    if find_spec("tensorboard") is None:
        yield None, "tensorboard", "for it run: pip install 'fedavg-app[tensorboard]'"


def _flower() -> Iterator[Finding]:
    # The app knows nothing of the launchers.
    command = [sys.executable, "-m", "deployment.flower_parts"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    for line in found.stdout.splitlines():
        what, _, why = line.partition(": ")
        yield None if why else True, what, why


def _data() -> Iterator[Finding]:
    import tasks
    from tasks.data.cache import cache_root
    from tasks.data.sources import Sources

    yield True, f"data cache {cache_root()}", ""
    loaders = [getattr(tasks.load(name).dataset, "__self__", None) for name in tasks.names()]
    sources = {loader.label: loader for loader in loaders if isinstance(loader, Sources)}
    for source in sources.values():
        where = source.available()
        fix = "" if where else source.ways()
        yield True if where else None, f"{source.label}: {where or 'not on this machine'}", fix


def _ray() -> Iterator[Finding]:
    if find_spec("ray") is None:
        return
    from fedavg_app.errors import USER_ERRORS
    from fedavg_app.ray_engine.ray_cluster import ray_cluster, usable_cpus

    workers = usable_cpus()
    yield True, f"simulations run on {workers} workers, one per usable CPU", ""
    try:
        with ray_cluster("", 1, 0, "cpu") as started:
            started.result()
            yield True, "Ray starts", ""
    except USER_ERRORS as error:
        yield False, f"Ray: {error}", "free memory and space in /tmp, then try again"


def _gpu() -> Iterator[Finding]:
    import torch

    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "the CPU alone"
    build = f"ROCm {torch.version.hip}" if torch.version.hip else build
    yield True, f"torch is built for {build}", ""
    if torch.cuda.is_available():
        for number in range(torch.cuda.device_count()):
            yield True, f"GPU {number}: {torch.cuda.get_device_name(number)}", ""
    elif Path("/proc/driver/nvidia/version").exists() or Path("/dev/kfd").exists():
        fix = "install torch's build for it, see https://pytorch.org/get-started/locally"
        yield None, "a GPU is here that torch cannot use; models are trained on the CPU", fix
    else:
        yield None, "no GPU; models are trained on the CPU", ""


def _proxy() -> Iterator[Finding]:
    from urllib.request import getproxies, proxy_bypass

    proxy = next((f"{k} {v}" for k, v in getproxies().items() if k in ("http", "https", "all")), "")
    if proxy and not (proxy_bypass("127.0.0.1") and proxy_bypass("localhost")):
        text = f"{proxy} is the proxy for localhost, too: flwr will not reach its own SuperLink"
        yield False, text, "add localhost,127.0.0.1,::1 to NO_PROXY"
