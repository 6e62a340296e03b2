"""A training's schedule."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fedavg_app.config import RunConfig, TrainingConfig

if TYPE_CHECKING:  # torch takes two seconds to import
    from tasks.base import Task


@dataclass(frozen=True)
class TrainingPlan:
    """A training's schedule, with the task's defaults where the config says "auto".

    The fields are those of `RunConfig`; None stands for no target and no timeout.
    """

    num_rounds: int
    learning_rate: float
    learning_rate_decay: float
    evaluate_every: int
    target_accuracy: float | None
    seed: int
    fraction_train: float = 1.0
    fraction_evaluate: float = 0.0
    over_selection: float = 0.0
    round_timeout: float | None = None
    node_timeout: float = 3.0

    def rate(self, server_round: int) -> float:
        """Return the learning rate of a round, which counts from 1."""
        return self.learning_rate * self.learning_rate_decay ** (server_round - 1)

    def reached(self, accuracy: float | None) -> bool:
        """Return whether this test accuracy ends the training; None, not tested, does not."""
        target = self.target_accuracy
        return target is not None and accuracy is not None and accuracy >= target


def make_plan(config: TrainingConfig, task: "Task") -> TrainingPlan:
    """Return the plan of the config's training."""
    rate, target = config.learning_rate, config.target_accuracy
    if rate == "auto":
        rate = task.learning_rates.get(config.method, task.learning_rate)
    plan = TrainingPlan(
        num_rounds=config.num_server_rounds,
        learning_rate=rate,
        learning_rate_decay=config.learning_rate_decay,
        evaluate_every=config.evaluate_every,
        target_accuracy=(task.target_accuracy if target == "auto" else target) or None,
        seed=config.seed,
    )
    if not isinstance(config, RunConfig):
        return plan
    return replace(
        plan,
        fraction_train=config.fraction_train,
        fraction_evaluate=config.fraction_evaluate,
        over_selection=config.over_selection,
        round_timeout=config.round_timeout or None,
        node_timeout=config.node_timeout,
    )
