"""A training's schedule."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedavg_app.config import RunConfig, TrainingConfig
from fedavg_app.results.metrics import RoundMetrics
from fedavg_app.results.rounds_to_target import accuracy_curve, best_point

if TYPE_CHECKING:  # torch takes two seconds to import
    from tasks.base import Task
    from tasks.data.dataset import Dataset

logger = logging.getLogger("fedavg_app.training_plan")


@dataclass(frozen=True)
class TrainingPlan:
    """A training's schedule, with the task's defaults where the config says "auto".

    The fields are those of `RunConfig`; None stands for no target, and 0 for no patience.
    ``on_clients`` says that target, patience and best model go by the clients' own accuracy.
    """

    num_rounds: int
    learning_rate: float
    learning_rate_decay: float
    target_accuracy: float | None
    patience: int
    seconds_per_example: float
    on_clients: bool = False

    def curve(self, history: Sequence[RoundMetrics]) -> list[tuple[int, float]]:
        """Return (round, accuracy) for the rounds with the accuracy that the training goes by."""
        return accuracy_curve(history, on_clients=self.on_clients)

    def score(self, metrics: RoundMetrics) -> float | None:
        """Return the accuracy that the training goes by, in [0, 1]; None if not tested."""
        return metrics.score(on_clients=self.on_clients)

    def rate(self, server_round: int) -> float:
        """Return the learning rate of a round, which counts from 1."""
        return self.learning_rate * self.learning_rate_decay ** (server_round - 1)

    def resolved(self) -> dict[str, float]:
        """Return the values of the config's fields that may be "auto"."""
        return {
            "learning_rate": self.learning_rate,
            "target_accuracy": self.target_accuracy or 0.0,
            "seconds_per_example": self.seconds_per_example,
        }

    def ends_after(self, history: Sequence[RoundMetrics]) -> bool:
        """Return whether training ends after the last of these rounds; round 0 does not end it."""
        last = history[-1]
        if last.round >= self.num_rounds:
            return True
        score, target = self.score(last), self.target_accuracy
        reached = score is not None and target is not None and score >= target
        return last.round > 0 and (reached or self.out_of_patience(history))

    def out_of_patience(self, history: Sequence[RoundMetrics]) -> bool:
        """Return whether a test came after ``patience`` rounds without a better accuracy."""
        if not self.patience or self.score(history[-1]) is None:
            return False
        best = best_point(self.curve(history))
        return best is not None and history[-1].round - best[0] >= self.patience


def make_plan(
    config: TrainingConfig,
    task: "Task",
    data: "Dataset | None" = None,
    resolved: Mapping[str, float] | None = None,
) -> TrainingPlan:
    """Return the plan of a training.

    Args:
        config: Its settings.
        task: Gives what is "auto" in them.
        data: The target of the plan is one that these data can reach.
        resolved: What was "auto" as the run to resume began (`TrainingPlan.resolved`).
    """
    begun = {name: one for name, one in (resolved or {}).items() if getattr(config, name) == "auto"}
    config = config.model_copy(update=begun)
    rate, target, seconds = config.learning_rate, config.target_accuracy, task.seconds_per_example
    if rate == "auto":
        rate = task.learning_rates.get(config.method, task.learning_rate)
    if isinstance(config, RunConfig) and config.seconds_per_example != "auto":
        seconds = config.seconds_per_example
    if target == "auto":
        target, embedded = task.target_accuracy or 0.0, task.embedded_target_accuracy
        if (
            data is not None
            and data.options.source == "embedded"
            and embedded not in (None, target)
        ):
            text = (
                "target accuracy %s for the embedded part of the data (for the full data set: %s)"
            )
            logger.info(text, embedded, target or None)
            target = embedded
    return TrainingPlan(
        num_rounds=config.num_server_rounds,
        learning_rate=rate,
        learning_rate_decay=config.learning_rate_decay,
        target_accuracy=target or None,
        patience=config.patience,
        seconds_per_example=seconds,
        on_clients=isinstance(config, RunConfig) and bool(config.local_arrays),
    )
