"""A training's schedule."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fedavg_app.budget import BYTES, SECONDS, Budget
from fedavg_app.config import RunConfig, TrainingConfig
from fedavg_app.errors import ConfigError
from fedavg_app.optimizer_choice import learning_rate, resolve_work
from fedavg_app.results.history import (
    Best,
    RoundMetrics,
    best_of,
    objective_curve,
    virtual_times,
)
from tasks.arguments import Arguments
from tasks.objective import Objective
from tasks.training.training_settings import LocalWork

if TYPE_CHECKING:  # torch takes two seconds to import
    from tasks.base import Task
    from tasks.data.dataset import Dataset

logger = logging.getLogger("fedavg_app.training_plan")

# What is counted of the bytes of a budget.
COUNTED = {"up": ("bytes_up",), "down": ("bytes_down",), "both": ("bytes_up", "bytes_down")}


@dataclass(frozen=True)
class TrainingPlan:
    """A training's schedule, with the task's defaults for "auto".

    The fields are those of `RunConfig`; None stands for no target, and 0 for no patience.
    ``on_clients`` says that target, patience and best model use the clients' own tests. A training
    ends before the round that would exceed its budget, if it has one. ``work`` is the clients'
    local work.
    """

    num_rounds: int
    work: LocalWork
    learning_rate: float
    learning_rate_decay: float
    objective: Objective
    target: float | None
    patience: int
    seconds_per_example: float
    on_clients: bool = False
    budget: Budget | None = None
    num_clients: int = 1

    def curve(self, history: Sequence[RoundMetrics]) -> list[tuple[int, float]]:
        """Return (round, `score`) for the rounds that were tested."""
        return objective_curve(history, self.objective, on_clients=self.on_clients)

    def score(self, metrics: RoundMetrics) -> float | None:
        """Return the value of the objective; None if not tested."""
        return metrics.score(self.objective, on_clients=self.on_clients)

    def best(self, history: Sequence[RoundMetrics]) -> Best | None:
        """Return what these rounds have come to; None if none was tested."""
        return best_of(history, self.objective, on_clients=self.on_clients)

    def rate(self, server_round: int) -> float:
        """Return the learning rate of a round, which counts from 1."""
        return self.learning_rate * self.learning_rate_decay ** (server_round - 1)

    def resolved(self) -> dict[str, float | str]:
        """Return the values of the config's fields that may be "auto"."""
        return {
            "learning_rate": self.learning_rate,
            "optimizer": self.work.optimizer,
            "optimizer_args": str(self.work.optimizer_args),
            "objective": str(self.objective),
            "target": "none" if self.target is None else self.target,
            "seconds_per_example": self.seconds_per_example,
        }

    def ends_after(self, history: Sequence[RoundMetrics]) -> bool:
        """Return whether training ends after the last of these rounds; round 0 does not end it."""
        last = history[-1]
        if last.round >= self.num_rounds:
            return True
        return last.round > 0 and (self.is_reached(last) or self.out_of_patience(history))

    def is_reached(self, metrics: RoundMetrics) -> bool:
        """Return whether a round's test reaches the target."""
        return self.objective.is_reached(self.score(metrics), self.target)

    def spent(self, history: Sequence[RoundMetrics]) -> float:
        """Return what these rounds have spent, in the budget's unit; 0 without a budget."""
        return spent(self.budget, history, self.num_clients) if self.budget else 0.0

    def affords(self, history: Sequence[RoundMetrics]) -> bool:
        """Return whether these rounds are within the budget."""
        return self.budget is None or affords(self.budget, history, self.num_clients)

    def is_near_its_end(self, history: Sequence[RoundMetrics]) -> bool:
        """Return whether a training with a budget may not afford a round that is a bit dearer."""
        if self.budget is None:
            return False
        now, before = self.spent(history), self.spent(history[:-1])
        expected = now + 1.1 * (now - before)
        return expected > self.budget.amount or history[-1].round >= self.num_rounds

    def out_of_patience(self, history: Sequence[RoundMetrics]) -> bool:
        """Return whether a test came after ``patience`` rounds without a better objective."""
        if not self.patience or self.score(history[-1]) is None:
            return False
        best = self.objective.best_point(self.curve(history))
        return best is not None and history[-1].round - best[0] >= self.patience


def spent(budget: Budget, history: Sequence[RoundMetrics], num_clients: int) -> float:
    """Return what these rounds have spent, in the budget's unit.

    Args:
        budget: Its kind says what is counted: of bytes those of training messages.
        history: The rounds, with their totals.
        num_clients: K.
    """
    if not history:
        return 0.0
    if not budget.direction:
        return virtual_times(history)[-1] / SECONDS[budget.unit]
    total = sum(history[-1].total[name] for name in COUNTED[budget.direction])
    return total / BYTES[budget.unit] / (num_clients if budget.each else 1)


def affords(budget: Budget, history: Sequence[RoundMetrics], num_clients: int) -> bool:
    """Return whether these rounds are within a budget; as for `spent`."""
    return spent(budget, history, num_clients) <= budget.amount


def make_plan(
    config: TrainingConfig,
    task: "Task",
    data: "Dataset | None" = None,
    resolved: Mapping[str, float | str] | None = None,
) -> TrainingPlan:
    """Return the plan of a training.

    Args:
        config: Its settings.
        task: Gives the values of "auto".
        data: The target of the plan is within reach of these data.
        resolved: The values of "auto" as the run to resume began (`TrainingPlan.resolved`).

    Raises:
        ConfigError: As for `resolve_work`, `learning_rate` and `objective_and_target`.
    """
    begun = {
        name: value for name, value in (resolved or {}).items() if getattr(config, name) == "auto"
    }
    if "optimizer" in begun and resolved is not None:
        begun["optimizer_args"] = Arguments(str(resolved["optimizer_args"]))
    config = config.model_copy(update=begun)
    seconds = config.seconds_per_example if isinstance(config, RunConfig) else "auto"
    work = resolve_work(config, task)
    objective, target = objective_and_target(config, task, data)
    return TrainingPlan(
        num_rounds=config.num_server_rounds,
        work=work,
        learning_rate=learning_rate(config, task, work),
        learning_rate_decay=config.learning_rate_decay,
        objective=objective,
        target=target,
        patience=config.patience,
        seconds_per_example=task.seconds_per_example if seconds == "auto" else seconds,
        on_clients=bool(config.local_patterns),
        budget=config.limit,
        num_clients=config.num_clients if isinstance(config, RunConfig) else 1,
    )


def objective_of(config: TrainingConfig, task: "Task") -> Objective:
    """Return the objective that the config names, or the task's.

    Raises:
        ConfigError: The task has no such objective, or its own cannot be used.
    """
    from tasks.checking import TaskError

    is_own = config.objective == "auto"
    try:
        return (task if is_own else replace(task, objective=config.objective)).default_objective()
    except TaskError as error:
        if is_own:
            raise ConfigError("task", config.task, str(error)) from error
        raise ConfigError("objective", config.objective, error.finding.text) from None


def objective_and_target(
    config: TrainingConfig, task: "Task", data: "Dataset | None" = None
) -> tuple[Objective, float | None]:
    """Return the objective, and the value of it at which training ends; None for none.

    Args:
        config: The training's settings.
        task: Gives the values of "auto".
        data: The target of the plan is within reach of these data.

    Raises:
        ConfigError: As for `objective_of`, or no accuracy reaches the target.
    """
    from tasks.metrics import accuracy

    objective = objective_of(config, task)
    if config.target != "auto":
        target = None if config.target == "none" else float(config.target)
        if target and target > 1 and task.metrics.get(objective.name) is accuracy:
            raise ConfigError("target", target, "accuracies are shares: give at most 1, as 0.97")
        return objective, target
    if objective != task.default_objective():
        return objective, None  # the task's target is one of its own objective
    target, embedded = task.target, task.embedded_target
    is_part = data is not None and data.options.source == "embedded"
    if is_part and embedded not in (None, target):
        text = "target %s %s for the embedded part of the data (for the full data set: %s)"
        logger.info(text, objective.name, embedded, target or None)
        target = embedded
    return objective, target
