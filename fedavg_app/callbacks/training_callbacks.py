"""Calls the callbacks of a training."""

import logging
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any

from flwr.app import ArrayRecord

from fedavg_app.callbacks.base import Callback, MakeCallback, TrainingRun
from fedavg_app.callbacks.best_model import BestModel
from fedavg_app.callbacks.console import Console
from fedavg_app.callbacks.log_file import log_file
from fedavg_app.callbacks.run_files import RunFiles
from fedavg_app.errors import USER_ERRORS
from fedavg_app.results.history import RoundMetrics, TrainingResult
from fedavg_app.results.rounds_to_target import rounds_to_target
from fedavg_app.results.run_folder import create_run_folder

logger = logging.getLogger("fedavg_app.callbacks")


class TrainingCallbacks:
    """A context manager around a training, which tells the callbacks how it goes and ends.

    Every training has a run folder with its best model and its log, and is shown on the console.
    A callback that fails is logged and does not fail the training, unless it raises one of
    `fedavg_app.errors.USER_ERRORS`: then results would be lost.

    Args:
        run: The training; its folder is made here.
        callbacks: Make further callbacks.

    Attributes:
        run: The training, with its folder.
        result: Its result, once it has ended.

    Raises:
        ConfigError: The folder or a callback cannot be made.
    """

    def __init__(self, run: TrainingRun, callbacks: Sequence[MakeCallback] = ()) -> None:
        self.run = replace(run, folder=create_run_folder(run.config, run.task.name))
        self.result = TrainingResult(
            list(run.completed), run.model, folder=self.run.folder, best_model=run.best_model
        )
        self._best = BestModel(run)
        self._log = log_file(self.run.folder)
        try:
            # The console comes last: at the end it says where the results are.
            makers = (RunFiles, *callbacks, Console)
            self._callbacks: list[Callback] = [make(self.run) for make in makers]
        except BaseException:
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
        self._best.add(metrics, model)
        self.result = replace(self.result, model=model, best_model=self._best.model)
        for callback in self._callbacks:
            self._call(callback.on_round_end, metrics, model)

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
            reached = rounds_to_target(curve, plan.target, plan.objective)
        self.result = replace(self.result, rounds_to_target=reached, error=error)
        failures: list[Exception] = []
        for callback in self._callbacks:
            try:
                self._call(callback.on_train_end, self.result)
            except USER_ERRORS as failure:
                failures.append(failure)
        self._log.__exit__(kind, error, traceback)
        if failures and error is None:
            raise failures[0]

    def _call(self, method: Callable[..., None], *args: Any) -> None:
        try:
            method(*args)
        except USER_ERRORS:
            raise
        except Exception:
            logger.exception("callback %s failed; the run continues", method.__qualname__)
