"""The folder that a training leaves (docs/run-folder.md): its name and the files in it."""

import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from fedavg_app.config import RunConfig, TrainingConfig
from fedavg_app.errors import ConfigError

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
