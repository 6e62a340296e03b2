"""The best model of a training, by test accuracy: ``best.safetensors``."""

from collections.abc import Iterable, Sequence
from contextlib import suppress

from flwr.app import ArrayRecord
from safetensors import SafetensorError, safe_open

from fedavg_app.callbacks.base import Callback, TrainingRun
from fedavg_app.config import RunConfig
from fedavg_app.results.checkpoint import FOLDER
from fedavg_app.results.metrics import RoundMetrics, TrainingResult
from fedavg_app.results.model_file import load_model, save_model
from fedavg_app.results.rounds_to_target import accuracy_curve, best_point

BEST_MODEL_FILE = "best.safetensors"


class BestModel(Callback):
    """A callback that keeps the model of the first round with the best test accuracy.

    It is written as the training ends, and with every checkpoint, so that a training that is
    resumed knows it. The file that it replaces goes into the checkpoint's folder, until the next
    checkpoint is complete: where a training ended after its last checkpoint, a resumed one takes
    that file, since the rounds in between are done again. The file's metadata have the round and
    the accuracy.

    Args:
        run: The training.

    Attributes:
        model: The best model so far; None before a round was tested.
    """

    def __init__(self, run: TrainingRun) -> None:
        self._path = run.folder / BEST_MODEL_FILE
        self._of_checkpoint = run.folder / FOLDER / BEST_MODEL_FILE
        config = run.config
        self._every = config.checkpoint_every if isinstance(config, RunConfig) else 0
        self.model: ArrayRecord | None = None
        self._accuracy, self._round, self._written = -1.0, 0, True
        if run.completed:
            self._read(run.task.model().state_dict(), run.completed)

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
            with suppress(OSError):  # there is no such file, or no checkpoint
                self._path.replace(self._of_checkpoint)
            about = {"round": str(self._round), "accuracy": repr(self._accuracy)}
            save_model(self.model, self._path, about)
            self._written = True

    def _read(self, names: Iterable[str], completed: Sequence[RoundMetrics]) -> None:
        """Take the best model of the completed rounds; without its file, the best of what comes."""
        best = best_point(accuracy_curve(completed))
        for path in (self._path, self._of_checkpoint):
            with suppress(OSError, SafetensorError, KeyError, TypeError, ValueError):
                with safe_open(path, framework="numpy") as file:  # type: ignore[no-untyped-call, unused-ignore]
                    about = file.metadata()
                if best is None or int(about["round"]) != best[0]:
                    continue
                self.model = load_model(path, names)
                self._round, self._accuracy = best
                path.replace(self._path)
                return
        with suppress(OSError):
            self._path.unlink()  # it is of a round that is done again
