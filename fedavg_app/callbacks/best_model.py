"""The best model of a training so far."""

import math

from flwr.app import ArrayRecord

from fedavg_app.callbacks.base import TrainingRun
from fedavg_app.results.metrics import RoundMetrics
from fedavg_app.results.rounds_to_target import best_point


class BestModel:
    """Keeps the model of the first round with the best accuracy (`TrainingPlan.score`).

    Attributes:
        model: The model; None before a round was tested.
    """

    def __init__(self, run: TrainingRun) -> None:
        self._plan, self.model = run.plan, run.best_model
        best = best_point(run.plan.curve(run.completed))
        self._accuracy = best[1] if best else -math.inf

    def add(self, metrics: RoundMetrics, model: ArrayRecord) -> None:
        """Take in a round's model."""
        score = self._plan.score(metrics)
        if score is not None and score > self._accuracy:
            self._accuracy, self.model = score, model
