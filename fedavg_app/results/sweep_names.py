"""The names of a sweep's methods, in a file of its folder: tables and figures use them."""

import json
from collections.abc import Mapping
from pathlib import Path

from fedavg_app.errors import ConfigError

# In the sweep's folder, which has a folder for each run, in which is the run's own.
NAMES_FILE = "sweep-names.json"


def write_names(folder: Path, names: Mapping[str, str]) -> None:
    """Write the name of the method of every run, by the run's folder in the sweep's."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(dict(names), indent=2, ensure_ascii=False)
    (folder / NAMES_FILE).write_text(text + "\n", encoding="utf-8")


def read_names(run: Path) -> dict[str, str]:
    """Return the names of the sweep that made a run; none if no sweep did.

    Raises:
        ConfigError: The sweep's file of names is damaged.
    """
    path = run.resolve().parent.parent / NAMES_FILE
    try:
        names = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        return {str(slug): str(name) for slug, name in names.items()}
    except (OSError, ValueError, AttributeError) as error:
        fix = f"is damaged ({error}); the sweep's command rewrites it"
        raise ConfigError("RUN", str(path), fix) from error


def own_name(run: Path) -> str:
    """Return the name that a run's sweep gave its method; empty if none."""
    return read_names(run).get(run.resolve().parent.name, "")
