"""The files that a training leaves: config, history, summary and model."""

import json
import time
from collections.abc import Mapping
from typing import Any

from flwr.app import ArrayRecord

from fedavg_app.callbacks.base import Callback, TrainingRun
from fedavg_app.callbacks.summary import communication, summarize
from fedavg_app.config import RunConfig
from fedavg_app.results.metrics import RoundMetrics, TrainingResult
from fedavg_app.results.model_file import reporting_write_errors, save_model
from fedavg_app.results.rounds_to_target import accuracy_curve, best_point
from fedavg_app.results.run_folder import (
    BEST_MODEL_FILE,
    CONFIG_FILE,
    HISTORY_FILE,
    MODEL_FILE,
    SUMMARY_FILE,
    reporting_unwritable,
)
from tasks.data.atomic_file import replacing


class RunDirectory(Callback):
    """A callback that writes the files of a training.

    ``config.json``, ``history.jsonl`` (a line as each round ends), ``summary.json``,
    ``model.safetensors``, the last global model, and ``best.safetensors``, that of the first round
    with the best test accuracy; its metadata have the round and the accuracy. A federated training
    also leaves its bytes in the form of Flower's benchmark apps. The history of a resumed training
    is cut back to the rounds that are completed.

    Args:
        run: The training.

    Raises:
        ConfigError: The folder cannot be written.
    """

    def __init__(self, run: TrainingRun) -> None:
        self._run = run
        self._seconds_before = sum(metrics.seconds for metrics in run.completed)
        self._started = time.monotonic()
        resumed = isinstance(run.config, RunConfig) and run.config.resume
        with reporting_unwritable(run.config):
            settings = run.config.model_dump(by_alias=True)
            self._write_json(CONFIG_FILE, settings | ({"resume": ""} if resumed else {}))
            with replacing(run.folder / HISTORY_FILE) as temporary:
                temporary.write_text("".join(map(_line, run.completed)), encoding="utf-8")
            self._history = (run.folder / HISTORY_FILE).open("a", encoding="utf-8")

    def on_round_end(self, metrics: RoundMetrics, model: ArrayRecord) -> None:
        """Append a line to the history, on disk when this returns.

        Raises:
            RunError: It cannot be written.
        """
        del model
        with reporting_write_errors(self._run.folder):
            self._history.write(_line(metrics))
            self._history.flush()

    def on_train_end(self, result: TrainingResult) -> None:
        """Write the models, if there are any, and the summary.

        Raises:
            RunError: One of them cannot be written.
        """
        seconds = self._seconds_before + time.monotonic() - self._started
        with reporting_write_errors(self._run.folder):
            self._history.close()
            if result.model is not None:
                save_model(result.model, self._run.folder / MODEL_FILE)
            best = best_point(accuracy_curve(result.history))
            if result.best_model is not None and best is not None:
                about = {"round": str(best[0]), "accuracy": repr(best[1])}
                save_model(result.best_model, self._run.folder / BEST_MODEL_FILE, about)
            self._write_json(SUMMARY_FILE, summarize(self._run, result, seconds))
            if isinstance(self._run.config, RunConfig):
                name = f"result_{self._run.folder.name}_communication.json"
                self._write_json(name, communication(result.history))

    def _write_json(self, name: str, content: Mapping[str, Any]) -> None:
        with replacing(self._run.folder / name) as temporary:
            temporary.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _line(metrics: RoundMetrics) -> str:
    return json.dumps(metrics.as_json()) + "\n"
