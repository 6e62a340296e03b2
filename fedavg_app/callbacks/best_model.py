"""The best model of a training so far."""

from flwr.app import ArrayRecord

from fedavg_app.callbacks.base import TrainingRun
from fedavg_app.results.history import RoundMetrics


class BestModel:
    """Keeps the model of the first round with the best objective (`TrainingPlan.score`).

    Attributes:
        model: The model; None before a round was tested.
    """

    def __init__(self, run: TrainingRun) -> None:
        self._plan, self.model = run.plan, run.best_model
        best = run.plan.objective.best_point(run.plan.curve(run.completed))
        self._best = best[1] if best else None

    def add(self, metrics: RoundMetrics, model: ArrayRecord) -> None:
        """Keep the round's model if it is the best."""
        score = self._plan.score(metrics)
        if score is not None and self._plan.objective.is_better(score, self._best):
            self._best, self.model = score, model
