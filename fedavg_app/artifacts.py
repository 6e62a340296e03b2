"""What a run leaves behind: one folder with config, history, summary, model and curves."""

import json
import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord
from safetensors.numpy import save_file

from fedavg_app.config import RunConfig, TrainingConfig
from fedavg_app.errors import ConfigError
from fedavg_app.history import RoundRecord
from tasks.data.atomic import replacing

CONFIG_FILE, HISTORY_FILE = "config.json", "history.jsonl"


class RunDirectory:
    """The folder of one training: a new one, or that of a run which goes on.

    Files: ``config.json``, ``history.jsonl`` (a line as each round ends), ``summary.json``,
    ``model.safetensors``, ``accuracy.png``, ``loss.png`` and, where bits were sent,
    ``accuracy-bits.png``; ``checkpoint/`` (`fedavg_app.checkpoint`) if the config asks for it.

    Args:
        config: The run's settings.
        task_name: The task's short name, which goes into the folder's.
        done: The rounds that are over already, where the config says to resume; the history is
            cut back to them.

    Raises:
        ConfigError: The folder cannot be made or written.
    """

    def __init__(
        self, config: TrainingConfig, task_name: str, done: Sequence[RoundRecord] = ()
    ) -> None:
        resumed = config.resume if isinstance(config, RunConfig) else ""
        stamp = datetime.now().astimezone().strftime("%Y%m%d-%H%M%S")
        name = f"{stamp}-{task_name}-{config.method}-{secrets.token_hex(2)}"
        self.path = Path(resumed or Path(config.run_dir) / name).expanduser().resolve()
        try:
            self.path.mkdir(parents=True, exist_ok=bool(resumed))
            settings = config.model_dump(by_alias=True)
            self._write_json(CONFIG_FILE, settings | ({"resume": ""} if resumed else {}))
            with replacing(self.path / HISTORY_FILE) as temporary:
                temporary.write_text("".join(map(_line, done)), encoding="utf-8")
            self._history = (self.path / HISTORY_FILE).open("a", encoding="utf-8")
        except OSError as error:
            raise ConfigError(
                "resume" if resumed else "run-dir",
                resumed or config.run_dir,
                f"cannot write there ({error.strerror}); give a writable directory",
            ) from error

    def append(self, record: RoundRecord) -> None:
        """Add one round to the history, on disk when this returns."""
        self._history.write(_line(record))
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


def _line(record: RoundRecord) -> str:
    return json.dumps(record.as_json()) + "\n"
