"""The bookkeeping of one training, federated or central: on the screen and in its folder."""

import time
from collections.abc import Sequence
from types import TracebackType

from fedavg_app.artifacts import RunDirectory
from fedavg_app.config import TrainingConfig
from fedavg_app.history import Listen, RoundRecord
from fedavg_app.plan import Plan
from fedavg_app.plots import plot_run
from fedavg_app.progress import RoundProgress
from fedavg_app.rounds import Outcome
from fedavg_app.summary import describe, report, summarise
from tasks.base import Task
from tasks.data.store import Dataset


class Recording:
    """A context manager that is told of every round and of the outcome.

    What a training leaves behind is complete however it ends: history, summary, curves, and the
    model if there is an outcome.

    Args:
        config: The training's settings.
        task: The learning problem.
        plan: What is to be done.
        data: The data set.
        done: The rounds of this run that are over already, if it goes on.
        listeners: Each returns, for the training's folder, who else is told of the rounds.

    Attributes:
        folder: The training's folder.

    Raises:
        ConfigError: Its folder cannot be made.
    """

    def __init__(
        self,
        config: TrainingConfig,
        task: Task,
        plan: Plan,
        data: Dataset,
        done: Sequence[RoundRecord] = (),
        listeners: Sequence[Listen] = (),
    ) -> None:
        self._config, self._task, self._plan, self._data = config, task, plan, data
        self._folder = RunDirectory(config, task.name, done)
        self.folder = self._folder.path
        self._listeners = [listen(self.folder) for listen in listeners]
        self._progress = RoundProgress(plan.num_rounds)
        self._progress.go_on(done)
        self._records = list(done)
        self._seconds_before = sum(record.seconds for record in done)
        self._outcome: Outcome | None = None
        self._started = time.monotonic()
        describe(self._progress.console, config, task, plan, data, self._folder.path)

    def __enter__(self) -> "Recording":
        """Start the display."""
        self._progress.__enter__()
        return self

    def add(self, record: RoundRecord) -> None:
        """Take in one round."""
        self._records.append(record)
        self._folder.append(record)
        self._progress.update(record)
        for listener in self._listeners:
            listener.add(record)

    def finish(self, outcome: Outcome) -> None:
        """Take in the outcome."""
        self._folder.write_model(outcome.arrays)
        self._outcome = outcome

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Write what is left to write, and say how it ended."""
        self._progress.__exit__(kind, error, traceback)
        seconds = self._seconds_before + time.monotonic() - self._started
        summary = summarise(self._plan, self._data, self._records, self._outcome, seconds)
        if self._outcome is None:
            reason = str(error) if isinstance(error, Exception) else "interrupted"
            summary |= {"status": "failed", "reason": reason}
        self._folder.write_summary(summary)
        if self._records:
            parts = (self._task.name, self._config.method, self._config.setting)
            title = f"{', '.join(parts)}, seed {self._config.seed}"
            plot_run(self._folder.path, self._records, self._plan.target_accuracy, title)
        self._folder.close()
        for listener in self._listeners:
            listener.close()
        if self._outcome is not None:
            report(self._progress.console, self._plan, self._outcome, self._folder.path)
