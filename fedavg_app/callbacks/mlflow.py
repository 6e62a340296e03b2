"""MLflow: a training's rounds and its config, on the server that MLFLOW_TRACKING_URI names."""

from typing import Any, ClassVar

from flwr.app import ArrayRecord

from fedavg_app.callbacks.base import Callback, TrainingRun
from fedavg_app.callbacks.scalars import scalars
from fedavg_app.server.metrics import RoundMetrics, TrainingResult

EXPERIMENT = "fedavg-app"


class MLflow(Callback):
    """A callback that logs every round to MLflow; a resumed training has a run of its own.

    Args:
        run: The training.
    """

    requires: ClassVar[str] = "mlflow"

    def __init__(self, run: TrainingRun) -> None:
        from mlflow import MlflowClient

        self._client: Any = MlflowClient()
        found = self._client.get_experiment_by_name(EXPERIMENT)
        experiment = found.experiment_id if found else self._client.create_experiment(EXPERIMENT)
        self._id = self._client.create_run(experiment, run_name=run.folder.name).info.run_id
        for key, value in run.config.model_dump(by_alias=True).items():
            self._client.log_param(self._id, key, value)

    def on_round_end(self, metrics: RoundMetrics, model: ArrayRecord) -> None:
        """Log a round."""
        del model
        for name, value in scalars(metrics).items():
            self._client.log_metric(self._id, name, value, step=metrics.round)

    def on_train_end(self, result: TrainingResult) -> None:
        """End the run, as failed where the training did."""
        self._client.set_terminated(self._id, "FINISHED" if result.error is None else "FAILED")
