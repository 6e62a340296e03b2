"""The curves of a training as PNG, drawn by `simulation.py` at the end."""

from fedavg_app.callbacks.base import Callback, TrainingRun
from fedavg_app.results.history import TrainingResult


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
            # Only now: it imports matplotlib, and torch, before which Ray is to start.
            from fedavg_app.callbacks.figures import save_curves

            save_curves(self._run, result)
