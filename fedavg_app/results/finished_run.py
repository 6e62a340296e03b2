"""Reads what a training left in its folder (docs/run-folder.md)."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from fedavg_app.config import migrate_saved_keys
from fedavg_app.errors import ConfigError
from fedavg_app.results.history import Best, RoundMetrics, best_of, read_history
from fedavg_app.results.run_folder import CONFIG_FILE, HISTORY_FILE, SUMMARY_FILE
from tasks.objective import Objective

# The statuses of runs that came to their end.
FINISHED = "finished"
STATUSES = (FINISHED, "diverged")
# The status of a run without a summary: still running, or killed.
UNFINISHED = "unfinished"
# What reading a damaged file of a run raises.
UNREADABLE = (OSError, SafetensorError, ValueError, LookupError, TypeError, AttributeError)


@dataclass(frozen=True)
class FinishedRun:
    """A training as read from its folder.

    Attributes:
        folder: The folder.
        config: The settings by today's keys: another version may have saved them.
        summary: The numbers of its ``summary.json``; empty if it is still running or was killed.
        history: Its rounds; at least one if it has ended.
    """

    folder: Path
    config: dict[str, Any]
    summary: dict[str, Any]
    history: list[RoundMetrics]

    @property
    def status(self) -> str:
        """How it ended, as its summary says; "unfinished" without one."""
        return str(self.summary.get("status", UNFINISHED))

    @property
    def came_to_its_end(self) -> bool:
        """Whether it ended by itself, as finished or diverged."""
        return self.status in STATUSES

    @property
    def on_clients(self) -> bool:
        """Whether it is judged by the clients' own tests (`RoundMetrics.score`)."""
        return bool(self.config.get("local-arrays"))

    @property
    def objective(self) -> Objective:
        """What it is judged by: the accuracy where its config says nothing else."""
        text = self.config.get("objective", "auto")
        return Objective() if text == "auto" else Objective.parse(text)

    @property
    def chosen_on(self) -> str:
        """What its best round is chosen on: "test", "validation" or "clients"."""
        return self.best.chosen_on if self.best else "clients" if self.on_clients else "test"

    @property
    def best(self) -> Best | None:
        """What it has come to; None if no round was tested."""
        return best_of(self.history, self.objective, on_clients=self.on_clients)


def read_run(folder: Path) -> FinishedRun:
    """Return the training of this folder.

    Raises:
        ConfigError: It is not the folder of a training, or a training that has ended has no round.
    """
    summary = read_summary(folder)
    ended = summary.get("status") in STATUSES
    with reading(folder, HISTORY_FILE) as path:
        history = read_history(path, cut_off=not ended)
        if ended and not history:
            raise ValueError("it has no round")
    return FinishedRun(folder, read_config(folder), summary, history)


def read_config(folder: Path) -> dict[str, Any]:
    """Return the settings of the training that left this folder, by kebab-case key.

    Raises:
        ConfigError: It is not the folder of a training.
    """
    return migrate_saved_keys(_read_table(folder, CONFIG_FILE))


def read_summary(folder: Path) -> dict[str, Any]:
    """Return the numbers of a training's ``summary.json``; none if it has not ended.

    Raises:
        ConfigError: The file is damaged.
    """
    return _read_table(folder, SUMMARY_FILE) if (folder / SUMMARY_FILE).is_file() else {}


def _read_table(folder: Path, name: str) -> dict[str, Any]:
    with reading(folder, name) as path:
        table: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return table


@contextmanager
def reading(folder: Path, name: str) -> Iterator[Path]:
    """Turn errors of reading the folder's files into an error that says which folder to give."""
    try:
        yield folder / name
    except UNREADABLE as error:
        why = getattr(error, "strerror", None) or error
        fix = f"give the folder of a run that has ended ({name}: {why})"
        raise ConfigError("RUN", str(folder), fix) from error
