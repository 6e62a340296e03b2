"""Communication-efficient federated learning on Flower.

From Python, for example in a notebook:

    from fedavg_app import RunConfig, simulate

    result = simulate(RunConfig(strategy="stc", partition="shards"))
"""

import pkgutil
from typing import TYPE_CHECKING, Any

from fedavg_app.own_packages import claim

if TYPE_CHECKING:
    from fedavg_app.config import CentralConfig, RunConfig
    from fedavg_app.ray_engine.simulation import simulate
    from fedavg_app.results.history import TrainingResult

__all__ = ["CentralConfig", "RunConfig", "TrainingResult", "simulate"]

_PATHS = {
    "CentralConfig": "fedavg_app.config:CentralConfig",
    "RunConfig": "fedavg_app.config:RunConfig",
    "TrainingResult": "fedavg_app.results.history:TrainingResult",
    "simulate": "fedavg_app.ray_engine.simulation:simulate",
}


claim()


def __getattr__(name: str) -> Any:
    # Imported when they are asked for: a device has no Ray, and its parent process must not have
    # this package's modules, which a run brings along.
    if name not in _PATHS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return pkgutil.resolve_name(_PATHS[name])
