"""What a run leaves behind: one folder with config, history, summary, model and curves."""

import json
import secrets
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord
from safetensors.numpy import save_file

from fedavg_app.atomic import replacing
from fedavg_app.config import TrainingConfig
from fedavg_app.errors import ConfigError
from fedavg_app.history import RoundRecord


class RunDirectory:
    """A new folder for one training.

    Files: ``config.json``, ``history.jsonl`` (a line as each round ends), ``summary.json``,
    ``model.safetensors``, ``accuracy.png``, ``loss.png`` and, where bits were sent,
    ``accuracy-bits.png``.

    Args:
        config: The run's settings.
        task_name: The task's short name, which goes into the folder's.

    Raises:
        ConfigError: The folder cannot be made.
    """

    def __init__(self, config: TrainingConfig, task_name: str) -> None:
        stamp = datetime.now().astimezone().strftime("%Y%m%d-%H%M%S")
        name = f"{stamp}-{task_name}-{config.method}-{secrets.token_hex(2)}"
        self.path = (Path(config.run_dir).expanduser() / name).resolve()
        try:
            self.path.mkdir(parents=True)
            self._write_json("config.json", config.model_dump(by_alias=True))
            self._history = (self.path / "history.jsonl").open("a", encoding="utf-8")
        except OSError as error:
            raise ConfigError(
                "run-dir",
                config.run_dir,
                f"cannot write there ({error.strerror}); give a writable directory",
            ) from error

    def append(self, record: RoundRecord) -> None:
        """Add one round to the history, on disk when this returns."""
        self._history.write(json.dumps(record.as_json()) + "\n")
        self._history.flush()

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Write ``summary.json``."""
        self._write_json("summary.json", summary)

    def write_model(self, arrays: ArrayRecord) -> None:
        """Write ``model.safetensors``: the arrays under their names in the state dict."""
        with replacing(self.path / "model.safetensors") as temporary:
            save_file({name: array.numpy() for name, array in arrays.items()}, temporary)

    def close(self) -> None:
        """Close the history."""
        self._history.close()

    def _write_json(self, name: str, content: Mapping[str, Any]) -> None:
        with replacing(self.path / name) as temporary:
            temporary.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
