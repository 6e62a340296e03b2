"""The best model of a training, by test accuracy: ``best.safetensors``."""

import contextlib
from collections.abc import Iterable

from flwr.app import ArrayRecord
from safetensors import SafetensorError, safe_open

from fedavg_app.callbacks.base import Callback, TrainingRun
from fedavg_app.callbacks.model_file import load_model, save_model
from fedavg_app.config import RunConfig
from fedavg_app.server.metrics import RoundMetrics, TrainingResult

BEST_MODEL_FILE = "best.safetensors"


class BestModel(Callback):
    """A callback that keeps the model of the first round with the best test accuracy.

    It is written as the training ends, and with every checkpoint, so that a training that is
    resumed knows it. The file's metadata have the round and the accuracy.

    Args:
        run: The training.

    Attributes:
        model: The best model so far; None before a round was tested.
    """

    def __init__(self, run: TrainingRun) -> None:
        self._path = run.folder / BEST_MODEL_FILE
        config = run.config
        self._every = config.checkpoint_every if isinstance(config, RunConfig) else 0
        self.model: ArrayRecord | None = None
        self._accuracy, self._round, self._written = -1.0, 0, True
        if run.completed:
            self._read(run.task.model().state_dict())

    def on_round_end(self, metrics: RoundMetrics, model: ArrayRecord) -> None:
        """Keep the model if it is the best.

        Raises:
            RunError: A checkpoint is due, and the model cannot be written.
        """
        if metrics.accuracy is not None and metrics.accuracy > self._accuracy:
            self.model, self._written = model, False
            self._accuracy, self._round = metrics.accuracy, metrics.round
        if self._every and metrics.round % self._every == 0:
            self._write()

    def on_train_end(self, result: TrainingResult) -> None:
        """Write the model.

        Raises:
            RunError: It cannot be written.
        """
        del result
        self._write()

    def _write(self) -> None:
        if self.model is not None and not self._written:
            about = {"round": str(self._round), "accuracy": repr(self._accuracy)}
            save_model(self.model, self._path, about)
            self._written = True

    def _read(self, names: Iterable[str]) -> None:
        # Without the file, which an older version did not write, the best of what comes is kept.
        with contextlib.suppress(OSError, SafetensorError, KeyError, TypeError, ValueError):
            with safe_open(self._path, framework="numpy") as file:
                about = file.metadata()
            model = load_model(self._path, names)
            self._accuracy, self._round = float(about["accuracy"]), int(about["round"])
            self.model = model
