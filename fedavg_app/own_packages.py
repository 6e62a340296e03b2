"""Makes `strategies` and `tasks` those beside this package, whatever the working directory has.

These are common folder names. Python takes the first on its path; in processes that Ray starts,
with ``python -m`` and in a notebook, that is the working directory's.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

OWN = ("strategies", "tasks")
PACKAGE = "fedavg_app"


class OwnPackages(MetaPathFinder):
    """Finds the packages `OWN` in the folder of the `fedavg_app` that is imported.

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
    file = getattr(sys.modules.get(PACKAGE), "__file__", None)
    return Path(file).parent.parent if file else None


def claim() -> None:
    """Make later imports of `OWN` find this project's packages."""
    # By name: a process may have had another copy of this module.
    others = [finder for finder in sys.meta_path if type(finder).__name__ != OwnPackages.__name__]
    sys.meta_path[:] = [OwnPackages(), *others]
