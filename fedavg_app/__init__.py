"""Communication-efficient federated learning on Flower.

From Python, for example in a notebook:

    from fedavg_app import RunConfig, simulate

    result = simulate(RunConfig(strategy="stc", partition="shards"))
"""

import pkgutil
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

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
# Common names of folders: in processes that Ray starts, with ``python -m`` and in a notebook,
# Python takes those of the working directory first.
OWN = ("strategies", "tasks")


class OwnPackages(MetaPathFinder):
    """Finds the packages `OWN` beside the `fedavg_app` that is imported.

    A device drops the installed `fedavg_app` for that of a run; then these are the run's, too.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the location of the package; None for all other modules."""
        del path  # None for a package that is in no other
        folder = own_folder()
        if fullname not in OWN or folder is None:
            return None
        return PathFinder.find_spec(fullname, [str(folder)], target)


def own_folder() -> Path | None:
    """Return the folder that has the package `fedavg_app` of this process, or None."""
    file = getattr(sys.modules.get(__name__), "__file__", None)
    return Path(file).parent.parent if file else None


# By name: a process may have had another copy of this module.
sys.meta_path[:] = [
    OwnPackages(),
    *(finder for finder in sys.meta_path if type(finder).__name__ != OwnPackages.__name__),
]


def __getattr__(name: str) -> Any:
    # Imported when they are asked for: a device has no Ray, and its parent process must not have
    # this package's modules, which a run brings along.
    if name not in _PATHS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return pkgutil.resolve_name(_PATHS[name])
