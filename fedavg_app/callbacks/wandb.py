"""Weights & Biases: a training's rounds, its config and its summary.

Where they go is the library's own business: `wandb login`, or WANDB_MODE=offline for files in the
training's folder, which `wandb sync` sends later.
"""

from typing import Any, ClassVar

from flwr.app import ArrayRecord

from fedavg_app.callbacks.base import Callback, TrainingRun
from fedavg_app.callbacks.scalars import scalars
from fedavg_app.callbacks.summary import summarize
from fedavg_app.results.metrics import RoundMetrics, TrainingResult

PROJECT = "fedavg-app"


class WandB(Callback):
    """A callback that logs every round to Weights & Biases, a resumed training's to the same run.

    Args:
        run: The training.
    """

    requires: ClassVar[str] = "wandb"

    def __init__(self, run: TrainingRun) -> None:
        import wandb

        self._run = run
        self._log: Any = wandb.init(
            project=PROJECT,
            id=run.folder.name,
            name=run.folder.name,
            dir=run.folder,
            config=run.config.model_dump(by_alias=True),
            resume="allow" if run.completed else None,
        )

    def on_round_end(self, metrics: RoundMetrics, model: ArrayRecord) -> None:
        """Log a round."""
        del model
        self._log.log(scalars(metrics), step=metrics.round)

    def on_train_end(self, result: TrainingResult) -> None:
        """Log the summary, and end the log as failed where the training did."""
        seconds = sum(metrics.seconds for metrics in result.history)
        self._log.summary.update(summarize(self._run, result, seconds))
        self._log.finish(exit_code=0 if result.error is None else 1)
