"""The commands that train: `run`, `resume` and `central`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from fedavg_app.callbacks.base import MakeCallback
from fedavg_app.cli.options import with_config
from fedavg_app.config import CentralConfig, RunConfig, parse_config

ENGINE, OUTPUT = "Engine", "Output"

Workers = Annotated[
    int,
    typer.Option(
        min=0, help="Ray actors; 0 means one per usable CPU core", rich_help_panel=ENGINE,
    ),
]  # fmt: skip
GpuShare = Annotated[
    float | None,
    typer.Option(
        min=0, help="the share of a GPU each actor reserves; by default they are divided evenly",
        rich_help_panel=ENGINE,
    ),
]  # fmt: skip
RayAddress = Annotated[
    str,
    typer.Option(
        metavar="HOST:PORT", help="join this Ray cluster instead of starting Ray here",
        rich_help_panel=ENGINE, show_default=False,
    ),
]  # fmt: skip
Callbacks = Annotated[
    list[str] | None,
    typer.Option(
        "--callback", metavar="NAME",
        help="also call this after each round: tensorboard, wandb, or "
        "package.module:Class; may be repeated",
        rich_help_panel=OUTPUT, show_default=False,
    ),
]  # fmt: skip


@with_config(RunConfig)
def run(
    config: RunConfig,
    *,
    num_workers: Workers = 0,
    gpus_per_worker: GpuShare = None,
    ray_address: RayAddress = "",
    callback: Callbacks = None,
) -> None:
    """Train a federated model on local Ray actors; the keys are those of `flwr run -c`."""
    _simulate(config, num_workers, gpus_per_worker, ray_address, callback)


def resume(
    folder: Annotated[Path, typer.Argument(help="the run's folder")],
    *,
    num_server_rounds: Annotated[
        int, typer.Option(min=0, help="maximum number of rounds; 0 keeps the run's")
    ] = 0,
    budget: Annotated[str, typer.Option(help="replaces the run's")] = "",
    data_dir: Annotated[
        str, typer.Option(help="the new data directory, if the data have moved")
    ] = "",
    device: Annotated[
        Literal["auto", "cpu", "cuda"] | None, typer.Option(help="replaces the run's")
    ] = None,
    num_workers: Workers = 0,
    gpus_per_worker: GpuShare = None,
    ray_address: RayAddress = "",
    callback: Callbacks = None,
) -> None:
    """Continue a run from its last checkpoint, in the same folder."""
    from fedavg_app.results.checkpoint import saved_config

    changes: dict[str, str | int] = {"resume": str(folder)}
    if num_server_rounds:
        changes["num-server-rounds"] = num_server_rounds
    if budget:
        changes["budget"] = budget
    if data_dir:
        changes |= {"data-dir": data_dir, "data-source": "auto"}
    if device:
        changes["device"] = device
    saved = saved_config(str(folder)).model_dump(by_alias=True)
    _simulate(parse_config(saved | changes), num_workers, gpus_per_worker, ray_address, callback)


@with_config(CentralConfig)
def central(
    config: CentralConfig,
    *,
    callback: Callbacks = None,
) -> None:
    """Train the same model by SGD on the pooled data, a baseline; a round is one step."""
    from fedavg_app.central_sgd import train_centrally
    from fedavg_app.server.preparation import load_task

    train_centrally(config, load_task(config), _callbacks(callback))


def _simulate(
    config: RunConfig,
    num_workers: int,
    gpus_per_worker: float | None,
    ray_address: str,
    names: list[str] | None,
) -> None:
    callbacks = _callbacks(names)
    share: float | Literal["auto"] = "auto" if gpus_per_worker is None else gpus_per_worker
    from fedavg_app.ray_engine.simulation import simulate

    simulate(config, num_workers, share, ray_address, callbacks)


def _callbacks(names: list[str] | None) -> list[MakeCallback]:
    """Return what makes the callbacks: plots, and those of these names."""
    from fedavg_app.callbacks.trackers import Plots
    from fedavg_app.plugins import CALLBACKS, load_component

    return [Plots, *(load_component("callback", name, CALLBACKS.load) for name in names or [])]
