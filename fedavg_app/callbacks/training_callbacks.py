"""Calls the callbacks of a training, and keeps its history, its best model and its checkpoints."""

import logging
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType
from typing import Any

from flwr.app import ArrayRecord
from flwr.serverapp import Grid

from fedavg_app.callbacks.base import Callback, MakeCallback, TrainingRun
from fedavg_app.callbacks.console import Console
from fedavg_app.callbacks.log_file import log_file
from fedavg_app.callbacks.run_files import RunFiles
from fedavg_app.config import RunConfig
from fedavg_app.errors import USER_ERRORS
from fedavg_app.results.checkpoint import ClientStateGrid, RunState, save_checkpoint
from fedavg_app.results.history import RoundMetrics, TrainingResult
from fedavg_app.results.run_folder import create_run_folder, locked
from fedavg_app.training_plan import TrainingPlan
from strategies.rounds.runner import Runner

logger = logging.getLogger("fedavg_app.callbacks")


class Checkpoints:
    """Saves a checkpoint after the rounds that the config's "checkpoint-..." keys name.

    Args:
        strategy: That of the run.
        grid: Has the clients' states, if it is a `ClientStateGrid`.
    """

    def __init__(self, strategy: Runner, grid: Grid) -> None:
        self._strategy, self._grid, self._last = strategy, grid, time.monotonic()

    def save_if_due(self, run: TrainingRun, result: TrainingResult) -> None:
        """Save a checkpoint of a federated run, with its result so far, if one is due.

        Raises:
            RunError: It cannot be written, or the strategy cannot be pickled.
        """
        config, grid, data = run.config, self._grid, run.data
        assert isinstance(config, RunConfig)
        assert result.model is not None
        if self._is_due(config, run.plan, result.history):
            states = grid.client_states() if isinstance(grid, ClientStateGrid) else {}
            reached = RunState(
                self._strategy, result.model, result.history[-1:], data.fingerprint, states,
                result.best_model, data.options.source, run.plan.resolved(),
            )  # fmt: skip
            save_checkpoint(run.folder, config, reached)

    def _is_due(
        self, config: RunConfig, plan: TrainingPlan, history: Sequence[RoundMetrics]
    ) -> bool:
        """Return whether a checkpoint is due, and if so restart the clock.

        With checkpoints on, one is due when the budget is about to be spent: the uncounted round
        changes the strategy, and a run with a larger budget resumes from before it.
        """
        now, every, seconds = time.monotonic(), config.checkpoint_every, config.checkpoint_seconds
        is_due = bool(every and history[-1].round % every == 0) or 0 < seconds <= now - self._last
        is_due |= bool(every or seconds) and plan.is_near_its_end(history)
        self._last = now if is_due else self._last
        return is_due


class TrainingCallbacks:
    """A context manager around a training, which tells the callbacks how it goes and ends.

    Every training has a run folder with its best model (`TrainingPlan.score`) and its log, and is
    shown on the console. A callback that fails is logged and does not fail the training, unless it
    raises one of `fedavg_app.errors.USER_ERRORS`: then results would be lost.

    Args:
        run: The training; its folder is made here.
        callbacks: Make further callbacks.
        checkpoints: Saves the checkpoints of a federated run.

    Attributes:
        run: The training, with its folder.
        result: Its result so far, or once it has ended.

    Raises:
        ConfigError: The folder or a callback cannot be made.
    """

    def __init__(
        self,
        run: TrainingRun,
        callbacks: Sequence[MakeCallback] = (),
        checkpoints: Checkpoints | None = None,
    ) -> None:
        self.run = replace(run, folder=create_run_folder(run.config, run.task.name))
        self.result = TrainingResult(
            list(run.completed), run.model, folder=self.run.folder, best_model=run.best_model
        )
        best = run.plan.objective.best_point(run.plan.curve(run.completed))
        self._best = best[1] if best else None
        self._checkpoints = checkpoints
        self._log = log_file(self.run.folder)
        self._lock = ExitStack()
        self._lock.enter_context(locked(self.run.folder))
        try:
            # The console comes last: at the end it says where the results are.
            makers = (RunFiles, *callbacks, Console)
            self._callbacks: list[Callback] = [make(self.run) for make in makers]
        except BaseException:
            self._lock.close()
            if not run.completed:  # then the folder is new, and no round is in it
                shutil.rmtree(self.run.folder, ignore_errors=True)
            raise

    def __enter__(self) -> "TrainingCallbacks":
        """Begin the training."""
        self._log.__enter__()
        return self

    def on_round_end(self, metrics: RoundMetrics, model: ArrayRecord) -> None:
        """Pass on the metrics and the global model of a round."""
        self.result.history.append(metrics)
        score, best_model = self.run.plan.score(metrics), self.result.best_model
        if score is not None and self.run.plan.objective.is_better(score, self._best):
            self._best, best_model = score, model  # of the first round with this value
        self.result = replace(self.result, model=model, best_model=best_model)
        for callback in self._callbacks:
            self._call(callback.on_round_end, metrics, model)
        if self._checkpoints is not None:
            self._call(self._checkpoints.save_if_due, self.run, self.result)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Pass on the result, or the error that ended the training."""
        plan, reached = self.run.plan, None
        if plan.target is not None and error is None:
            curve = plan.curve(self.result.history)
            reached = plan.objective.rounds_to_target(curve, plan.target)
        self.result = replace(self.result, rounds_to_target=reached, error=error)
        failures: list[Exception] = []
        for callback in self._callbacks:
            try:
                self._call(callback.on_train_end, self.result)
            except USER_ERRORS as failure:
                failures.append(failure)
        self._log.__exit__(kind, error, traceback)
        self._lock.close()
        if failures and error is None:
            raise failures[0]

    def _call(self, method: Callable[..., None], *args: Any) -> None:
        try:
            method(*args)
        except USER_ERRORS:
            raise
        except Exception:
            logger.exception("callback %s failed; the run continues", method.__qualname__)
