"""A callback that saves checkpoints of a federated run."""

import time

from flwr.app import ArrayRecord
from flwr.serverapp import Grid

from fedavg_app.callbacks.base import Callback, TrainingRun
from fedavg_app.callbacks.best_model import BestModel
from fedavg_app.config import RunConfig
from fedavg_app.results.checkpoint import ClientStateGrid, RunState, save_checkpoint
from fedavg_app.results.history import RoundMetrics
from strategies.rounds.runner import Runner


class Checkpoints(Callback):
    """Saves a checkpoint after the rounds that the config's "checkpoint-..." keys name.

    Args:
        run: The run; the callback that writes its history is called before this one.
        strategy: Its strategy.
        grid: Has the clients' states, if it is a `ClientStateGrid`.
    """

    def __init__(self, run: TrainingRun, strategy: Runner, grid: Grid) -> None:
        assert isinstance(run.config, RunConfig)
        self._run, self._config, self._strategy, self._grid = run, run.config, strategy, grid
        self._best, self._last = BestModel(run), time.monotonic()
        self._history = list(run.completed)

    def on_round_end(self, metrics: RoundMetrics, model: ArrayRecord) -> None:
        """Save a checkpoint if it is due.

        Raises:
            RunError: It cannot be written, or the strategy cannot be pickled.
        """
        self._best.add(metrics, model)
        self._history.append(metrics)
        if self._is_due(metrics.round):
            grid, data = self._grid, self._run.data
            states = grid.client_states() if isinstance(grid, ClientStateGrid) else {}
            reached = RunState(
                self._strategy, model, [metrics], data.fingerprint, states, self._best.model,
                data.options.source, self._run.plan.resolved(),
            )  # fmt: skip
            save_checkpoint(self._run.folder, self._config, reached)

    def _is_due(self, server_round: int) -> bool:
        """Return whether a checkpoint is due, and if so restart the clock.

        With checkpoints on, one is due when the budget is about to be spent: the uncounted round
        changes the strategy, and a run with a larger budget resumes from before it.
        """
        now, every = time.monotonic(), self._config.checkpoint_every
        seconds = self._config.checkpoint_seconds
        is_due = bool(every and server_round % every == 0) or 0 < seconds <= now - self._last
        is_due |= bool(every or seconds) and self._run.plan.is_near_its_end(self._history)
        self._last = now if is_due else self._last
        return is_due
