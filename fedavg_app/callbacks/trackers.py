"""A training's rounds as curves, in TensorBoard or in Weights & Biases.

Each imports its library when it is needed: `simulation.py` starts Ray before matplotlib and torch.
Where the numbers go is the library's choice: `tensorboard --logdir runs` shows the run's folder;
`wandb login`, or WANDB_MODE=offline for files in the training's folder, which `wandb sync` sends
later.
"""

from typing import Any

from flwr.app import ArrayRecord

from fedavg_app.callbacks.base import Callback, TrainingRun
from fedavg_app.callbacks.run_files import summarize
from fedavg_app.results.history import RoundMetrics, TrainingResult

# The project of Weights & Biases.
PROJECT = "fedavg-app"
TENSORBOARD_FOLDER = "tensorboard"
TENSORBOARD_FLUSH_SECONDS = 2


class Plots(Callback):
    """A callback that draws a training's curves as it ends, however it ends.

    Args:
        run: The training.
    """

    def __init__(self, run: TrainingRun) -> None:
        self._run = run

    def on_train_end(self, result: TrainingResult) -> None:
        """Plot the losses and each metric against rounds, and the objective against bytes sent.

        These are ``loss.png``, ``accuracy.png`` (or ``f1.png``) and, where anything was sent,
        ``accuracy-bytes.png``.

        Raises:
            RunError: A file cannot be written.
        """
        if result.history:
            from fedavg_app.callbacks.figures import save_curves

            save_curves(self._run, result)


class Tracker(Callback):
    """A callback that logs the numbers of every round."""

    def on_round_end(self, metrics: RoundMetrics, model: ArrayRecord) -> None:
        """Log a round, without the numbers that it does not have."""
        del model
        found = {
            "accuracy": metrics.accuracy,
            **metrics.test_metrics,
            **{f"clients/{name}": metrics.client_metrics[name] for name in metrics.client_values},
            **{f"validation/{name}": value for name, value in metrics.validation_metrics.items()},
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
