"""MLflow: a training's rounds and its config, on the server that MLFLOW_TRACKING_URI names."""

import os
import re
from typing import Any, ClassVar

from flwr.app import ArrayRecord

from fedavg_app.callbacks.base import Callback, TrainingRun
from fedavg_app.callbacks.scalars import scalars
from fedavg_app.errors import ConfigError
from fedavg_app.results.metrics import RoundMetrics, TrainingResult
from strategies.reply_validation import shorten

EXPERIMENT = "fedavg-app"
RETRIES = "2"


class MLflow(Callback):
    """A callback that logs every round to MLflow; a resumed training has a run of its own.

    Args:
        run: The training.

    Raises:
        ConfigError: The server does not answer, or its address cannot be used.
    """

    requires: ClassVar[str] = "mlflow"

    def __init__(self, run: TrainingRun) -> None:
        # By itself MLflow asks a server that does not answer for minutes before it says so.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", RETRIES)
        from mlflow import MlflowClient, get_tracking_uri
        from mlflow.exceptions import MlflowException

        try:
            self._client: Any = MlflowClient()
            found = self._client.get_experiment_by_name(EXPERIMENT)
            experiment = (
                found.experiment_id if found else self._client.create_experiment(EXPERIMENT)
            )
            self._id = self._client.create_run(experiment, run_name=run.folder.name).info.run_id
            for key, value in run.config.model_dump(by_alias=True).items():
                self._client.log_param(self._id, key, value)
        except MlflowException as error:
            server, reason = _without_password(get_tracking_uri()), _without_password(str(error))
            fix = f"MLFLOW_TRACKING_URI is {server}, which cannot be used: {shorten(reason)}"
            raise ConfigError("callback", "mlflow", fix) from error

    def on_round_end(self, metrics: RoundMetrics, model: ArrayRecord) -> None:
        """Log a round."""
        del model
        for name, value in scalars(metrics).items():
            self._client.log_metric(self._id, name, value, step=metrics.round)

    def on_train_end(self, result: TrainingResult) -> None:
        """End the run, as failed where the training did."""
        self._client.set_terminated(self._id, "FINISHED" if result.error is None else "FAILED")


def _without_password(text: str) -> str:
    """Return the text in one line, without the user and password of addresses."""
    return re.sub(r"//[^/@\s]*@", "//***@", " ".join(text.split()))
