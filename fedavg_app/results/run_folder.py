"""The folder that a training leaves (docs/run-folder.md): its name, its files and its models."""

import fcntl
import logging
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from flwr.app import ArrayRecord
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from fedavg_app.config import RunConfig, TrainingConfig
from fedavg_app.errors import ConfigError, RunError
from strategies.rounds.flower_arrays import from_record, to_record
from tasks.data.atomic_file import replacing

logger = logging.getLogger("fedavg_app.run_folder")

CONFIG_FILE, HISTORY_FILE, SUMMARY_FILE = "config.json", "history.jsonl", "summary.json"
MODEL_FILE, BEST_MODEL_FILE = "model.safetensors", "best.safetensors"


def create_run_folder(config: TrainingConfig, task_name: str) -> Path:
    """Return the folder of a training: a new one in "run-dir", or that of the run to resume.

    Raises:
        ConfigError: It cannot be made.
    """
    if isinstance(config, RunConfig) and config.resume:
        return Path(config.resume).expanduser().resolve()
    stamp = datetime.now().astimezone().strftime("%Y%m%d-%H%M%S")
    what = re.sub(r"[^\w.-]+", "-", f"{task_name}-{config.method}")  # a task's name is for people
    name = f"{stamp}-{what}-{secrets.token_hex(2)}"
    path = (Path(config.run_dir) / name).expanduser().resolve()
    with reporting_unwritable(config):
        path.mkdir(parents=True)
    return path


def check_run_dir(config: TrainingConfig) -> None:
    """Check that a new run's folder can be made in the config's "run-dir"; nothing is left there.

    Raises:
        ConfigError: It cannot.
    """
    folder = Path(config.run_dir).expanduser().absolute()
    there = next(path for path in (folder, *folder.parents) if path.exists())
    with reporting_unwritable(config), TemporaryDirectory(dir=there):
        pass


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes from training in a run's folder meanwhile.

    The lock ends with this process at the latest. File systems without locks are not locked.

    Raises:
        ConfigError: Another process trains there.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        fix = "another process trains this run; wait until it has ended"
        raise ConfigError("resume", str(folder), fix) from None
    except OSError:
        logger.debug("%s is on a file system without locks", folder)
    try:
        yield
    finally:
        os.close(descriptor)


@contextmanager
def reporting_unwritable(config: TrainingConfig) -> Iterator[None]:
    """Turn errors of writing to a folder into an error that names the key."""
    try:
        yield
    except OSError as error:
        resumed = config.resume if isinstance(config, RunConfig) else ""
        key, folder = ("resume", resumed) if resumed else ("run-dir", config.run_dir)
        fix = f"cannot write there ({error.strerror}); give a writable directory"
        raise ConfigError(key, folder, fix) from error


def save_model(model: ArrayRecord, path: Path, metadata: Mapping[str, str] | None = None) -> None:
    """Write the model's arrays under their names, atomically, and what else the file is to say.

    Raises:
        RunError: It cannot be written.
    """
    # In C order: safetensors 0.8.0 writes wrong numbers for arrays in another order.
    arrays = {name: np.asarray(array, order="C") for name, array in from_record(model).items()}
    with reporting_write_errors(path.parent), replacing(path) as temporary:
        save_file(arrays, temporary, dict(metadata or {}))


def load_model(path: Path, names: Iterable[str]) -> ArrayRecord:
    """Return the model in a file.

    Args:
        path: The file.
        names: The arrays in the model's order, which the file does not keep.

    Raises:
        OSError: There is none.
        SafetensorError: It is damaged.
        KeyError: It is of another model.
    """
    arrays = load_file(path)
    return to_record({name: arrays[name] for name in names})


@contextmanager
def reporting_write_errors(folder: Path) -> Iterator[None]:
    """Turn errors of writing to the folder into a `RunError`."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        raise RunError(write_error(folder, error)) from error


def write_error(folder: Path, error: Exception) -> str:
    """Return an error of writing to the folder in one line, with what to do."""
    why = getattr(error, "strerror", None) or " ".join(str(error).split())
    return f"cannot write to {folder}: {why}; free some space there, or make it writable"
