"""Trackers: a training's rounds in TensorBoard, Weights & Biases or MLflow.

Each library decides where they go: `tensorboard --logdir runs` shows the run's folder; `wandb
login`, or WANDB_MODE=offline for files in the training's folder, which `wandb sync` sends later;
MLFLOW_TRACKING_URI names a server.
"""

import os
import re
from typing import Any

from flwr.app import ArrayRecord

from fedavg_app.callbacks.base import Callback, TrainingRun
from fedavg_app.callbacks.run_files import summarize
from fedavg_app.errors import ConfigError
from fedavg_app.results.history import RoundMetrics, TrainingResult
from strategies.rounds.reply_errors import shorten

# The common name of all trainings: MLflow's experiment, the project of Weights & Biases.
PROJECT = "fedavg-app"
TENSORBOARD_FOLDER = "tensorboard"
TENSORBOARD_FLUSH_SECONDS = 2
# By default MLflow retries for minutes before it says that a server does not answer.
MLFLOW_RETRIES = "2"


class Tracker(Callback):
    """A callback that logs the numbers of every round."""

    def on_round_end(self, metrics: RoundMetrics, model: ArrayRecord) -> None:
        """Log a round, without the numbers that it does not have."""
        del model
        found = {
            "accuracy": metrics.accuracy,
            **metrics.test_metrics,
            **{f"clients/{name}": metrics.client_metrics[name] for name in metrics.client_values},
            "loss/test": metrics.test_loss,
            "loss/training": metrics.train_loss,
            "bytes/up": metrics.bytes_up,
            "bytes/down": metrics.bytes_down,
            "rejected": len(metrics.rejected),
        }
        scalars = {name: value for name, value in found.items() if value is not None}
        self._log(scalars, metrics.round)

    def _log(self, scalars: dict[str, float], number: int) -> None:
        """Log the numbers of a round."""
        raise NotImplementedError


class TensorBoard(Tracker):
    """A callback that logs every round to a folder in the run's.

    Args:
        run: The training.
    """

    def __init__(self, run: TrainingRun) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._folder, self._new_writer = run.folder / TENSORBOARD_FOLDER, SummaryWriter
        self._writer: Any = None

    def _log(self, scalars: dict[str, float], number: int) -> None:
        if self._writer is None:
            # A resumed run repeats the rounds after its last checkpoint: those logged are hidden.
            self._writer = self._new_writer(  # type: ignore[no-untyped-call, unused-ignore]
                str(self._folder), flush_secs=TENSORBOARD_FLUSH_SECONDS, purge_step=number
            )
        for name, value in scalars.items():
            self._writer.add_scalar(name, value, number)

    def on_train_end(self, result: TrainingResult) -> None:
        """Write what is not written yet."""
        del result
        if self._writer is not None:
            self._writer.close()


class WandB(Tracker):
    """A callback that logs every round to Weights & Biases, a resumed training's to the same run.

    Args:
        run: The training.
    """

    def __init__(self, run: TrainingRun) -> None:
        import wandb

        self._run = run
        self._wandb: Any = wandb.init(
            project=PROJECT,
            id=run.folder.name,
            name=run.folder.name,
            dir=run.folder,
            config=run.config.model_dump(by_alias=True),
            resume="allow" if run.completed else None,
        )

    def _log(self, scalars: dict[str, float], number: int) -> None:
        self._wandb.log(scalars, step=number)

    def on_train_end(self, result: TrainingResult) -> None:
        """Log the summary, and end the log, as failed if the training failed."""
        seconds = sum(metrics.seconds for metrics in result.history)
        self._wandb.summary.update(summarize(self._run, result, seconds))
        self._wandb.finish(exit_code=0 if result.error is None else 1)


class MLflow(Tracker):
    """A callback that logs every round to MLflow; a resumed training is a new run there.

    Args:
        run: The training.

    Raises:
        ConfigError: The server does not answer, or its address cannot be used.
    """

    def __init__(self, run: TrainingRun) -> None:
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", MLFLOW_RETRIES)
        from mlflow import MlflowClient, get_tracking_uri
        from mlflow.exceptions import MlflowException

        try:
            self._client: Any = MlflowClient()
            found = self._client.get_experiment_by_name(PROJECT)
            experiment = found.experiment_id if found else self._client.create_experiment(PROJECT)
            self._id = self._client.create_run(experiment, run_name=run.folder.name).info.run_id
            for key, value in run.config.model_dump(by_alias=True).items():
                self._client.log_param(self._id, key, value)
        except MlflowException as error:
            server, reason = _without_password(get_tracking_uri()), _without_password(str(error))
            fix = f"MLFLOW_TRACKING_URI is {server}, which cannot be used: {shorten(reason)}"
            raise ConfigError("callback", "mlflow", fix) from error

    def _log(self, scalars: dict[str, float], number: int) -> None:
        for name, value in scalars.items():
            self._client.log_metric(self._id, name, value, step=number)

    def on_train_end(self, result: TrainingResult) -> None:
        """End the run, as failed if the training failed."""
        self._client.set_terminated(self._id, "FINISHED" if result.error is None else "FAILED")


def _without_password(text: str) -> str:
    """Return the text on one line, without user and password in addresses."""
    return re.sub(r"//[^/@\s]*@", "//***@", " ".join(text.split()))
