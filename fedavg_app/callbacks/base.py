"""The interface of callbacks."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from flwr.app import ArrayRecord

from fedavg_app.config import TrainingConfig
from fedavg_app.results.history import RoundMetrics, TrainingResult
from fedavg_app.training_plan import TrainingPlan
from tasks.data.dataset import Dataset

if TYPE_CHECKING:  # torch takes two seconds to import
    from tasks.base import Task


@dataclass(frozen=True)
class TrainingRun:
    """What callbacks may know of a training, federated or central.

    Attributes:
        config: Its settings.
        task: The learning problem.
        plan: The schedule.
        data: The data set.
        completed: The rounds already completed, if the training is resumed.
        folder: The folder of its results.
        local_work: Human-readable description of the local work.
        model: The global model after the completed rounds.
        best_model: The best model of these.
        own_data: For each client with its own data, their fingerprint and the number of training
            examples.
    """

    config: TrainingConfig
    task: "Task"
    plan: TrainingPlan
    data: Dataset
    completed: Sequence[RoundMetrics] = ()
    folder: Path = Path()
    local_work: str = ""
    model: ArrayRecord | None = None
    best_model: ArrayRecord | None = None
    own_data: Mapping[int, tuple[str, int]] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """The training in one line, for figures."""
        config = self.config
        parts = (self.task.name, config.method, config.setting, self.local_work)
        return f"{', '.join(filter(None, parts))}, seed {config.seed}"


class Callback:
    """Hooks called after each round and at the end of training; by default they do nothing."""

    def on_round_end(self, metrics: RoundMetrics, model: ArrayRecord) -> None:
        """Called after each round, with its metrics and model; round 0 is the initial model."""

    def on_train_end(self, result: TrainingResult) -> None:
        """Called at the end; the result has an error if the training failed or was interrupted."""


# Makes a callback for a training; a ConfigError ends the training before round 0.
MakeCallback = Callable[[TrainingRun], Callback]
