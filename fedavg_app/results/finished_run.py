"""Reads what a training left in its folder (docs/run-folder.md)."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedavg_app.errors import ConfigError
from fedavg_app.results.metrics import RoundMetrics, read_history
from fedavg_app.results.run_folder import CONFIG_FILE, HISTORY_FILE, SUMMARY_FILE


@dataclass(frozen=True)
class FinishedRun:
    """What the folder of a training that has ended says of it.

    Attributes:
        folder: The folder.
        config: The settings by kebab-case key, as they were saved: maybe by another version.
        summary: The numbers of its ``summary.json``.
        history: At least one round.
    """

    folder: Path
    config: dict[str, Any]
    summary: dict[str, Any]
    history: list[RoundMetrics]


def read_run(folder: Path) -> FinishedRun:
    """Return the training that left this folder.

    Raises:
        ConfigError: It is not the folder of a training that has ended, with one round at least.
    """
    with _naming(folder, "a run that has ended"):
        config = _read_table(folder / CONFIG_FILE)
        try:
            history = read_history(folder / HISTORY_FILE)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise ValueError(f"{HISTORY_FILE} is damaged: {error}") from error
        if not history:
            raise ValueError(f"{HISTORY_FILE} has no round")
        return FinishedRun(folder, config, _read_table(folder / SUMMARY_FILE), history)


def read_config(folder: Path) -> dict[str, Any]:
    """Return the settings of the training that left this folder, by kebab-case key.

    Raises:
        ConfigError: It is not the folder of a training.
    """
    with _naming(folder, "a run"):
        return _read_table(folder / CONFIG_FILE)


def read_summary(folder: Path) -> dict[str, Any]:
    """Return the numbers of a training's ``summary.json``; none where it has not ended.

    Raises:
        ConfigError: The file is damaged.
    """
    with _naming(folder, "a run"):
        path = folder / SUMMARY_FILE
        return _read_table(path) if path.is_file() else {}


def _read_table(path: Path) -> dict[str, Any]:
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path.name} is damaged: {error}") from error
    if not isinstance(table, dict):
        raise ValueError(f"{path.name} holds no table")
    return table


@contextmanager
def _naming(folder: Path, wanted: str) -> Iterator[None]:
    """Turn errors of reading the folder into one that says which folder to give."""
    try:
        yield
    except (OSError, ValueError) as error:
        fix = f"give the folder of {wanted} ({_reason(error, folder)})"
        raise ConfigError("RUN", str(folder), fix) from error


def _reason(error: OSError | ValueError, folder: Path) -> str:
    if isinstance(error, ValueError):
        return str(error)
    if not folder.is_dir():
        return "it does not exist" if not folder.exists() else "it is a file"
    name = Path(error.filename).name
    if isinstance(error, FileNotFoundError):
        return f"it has no {name}"
    return f"{name} cannot be read: {error.strerror}"
