"""A training's schedule."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
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

    The fields are those of `RunConfig`; None stands for no target, no patience and no timeout.
    """

    num_rounds: int
    learning_rate: float
    learning_rate_decay: float
    evaluate_every: int
    target_accuracy: float | None
    seed: int
    patience: int | None = None
    fraction_train: float = 1.0
    fraction_evaluate: float = 0.0
    over_selection: float = 0.0
    round_timeout: float | None = None
    node_timeout: float = 3.0
    seconds_per_example: float = 0.0

    def rate(self, server_round: int) -> float:
        """Return the learning rate of a round, which counts from 1."""
        return self.learning_rate * self.learning_rate_decay ** (server_round - 1)

    def ends_after(self, history: Sequence[RoundMetrics]) -> bool:
        """Return whether training ends after the last of these rounds; round 0 does not end it."""
        last = history[-1]
        if last.round >= self.num_rounds:
            return True
        reached = self.target_accuracy is not None and (last.accuracy or 0) >= self.target_accuracy
        return last.round > 0 and (reached or self.out_of_patience(history))

    def out_of_patience(self, history: Sequence[RoundMetrics]) -> bool:
        """Return whether a test came after ``patience`` rounds without a better accuracy."""
        if self.patience is None or history[-1].accuracy is None:
            return False
        best = best_point(accuracy_curve(history))
        return best is not None and history[-1].round - best[0] >= self.patience


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
        patience=config.patience or None,
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
        seconds_per_example=(
            task.seconds_per_example
            if config.seconds_per_example == "auto"
            else config.seconds_per_example
        ),
    )


def plan_for_data(
    plan: TrainingPlan, config: TrainingConfig, task: "Task", data: "Dataset"
) -> TrainingPlan:
    """Return the plan with a target that the data can reach, where the config leaves it open."""
    target = task.embedded_target_accuracy
    if config.target_accuracy != "auto" or data.options.source != "embedded" or target is None:
        return plan
    if target != plan.target_accuracy:
        logger.info(
            "target accuracy %s for the embedded part of the data (for the full data set: %s)",
            target,
            plan.target_accuracy,
        )
    return replace(plan, target_accuracy=target)
