"""Evaluation of a model on examples, in batches whose results are added in a fixed order."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import nn

from tasks.base import Task
from tasks.data.dataset import first_leaf
from tasks.metrics import Metric, State, value_or_nan
from tasks.training.examples import call_model, count_predictions, number_of
from tasks.training.random_streams import derive_seed, seeded


class BatchResult(NamedTuple):
    """The result of a batch of a test.

    Attributes:
        loss: The sum of the losses over the predictions.
        predictions: The number of predictions.
        states: The state of each metric, by name.
    """

    loss: float
    predictions: int
    states: dict[str, State]


@dataclass(frozen=True)
class Scores:
    """The results of a test.

    Attributes:
        loss: The mean of the batches' losses, by their numbers of predictions.
        metrics: The value of each metric, by name.
    """

    loss: float
    metrics: dict[str, float]


class Evaluator:
    """Evaluates a model batch by batch; no batch's result depends on another's.

    Draws in the model or the loss are seeded by the batch's place, and each batch has a network of
    its own, unless the task says that one may be shared.

    Args:
        task: The learning problem.
        network: Returns a network of the task with the arrays to evaluate.
        seed: The run's seed.
        client: Whose test examples they are; None for the data set's.

    Attributes:
        network: Returns the network of a batch.
    """

    def __init__(
        self, task: Task, network: Callable[[], nn.Module], seed: int, client: int | None = None
    ) -> None:
        self._task, self._seed, self._client = task, seed, client
        self.network = cache(network) if task.shared_model else network
        self._metrics = task.test_metrics()

    @torch.no_grad()
    def batch(self, place: int, inputs: Any, targets: Any) -> BatchResult:
        """Return the sum of the losses, the number of predictions and the metrics' states.

        Args:
            place: The place of the batch's first example.
            inputs: Prepared inputs.
            targets: Their targets.

        Raises:
            ValueError: A metric's state cannot be right.
        """
        model = self.network().eval()
        # The same whoever evaluates the batch, and when.
        whose = ("test",) if self._client is None else (self._client, "client-test")
        seed, device = derive_seed(self._seed, place, *whose), first_leaf(inputs).device
        with seeded(seed, device, only_torch=self._task.shared_model):
            outputs = call_model(model, inputs)
            count = int(count_predictions(number_of(inputs), targets))
            loss = self._task.loss(outputs, targets).item() * count
            found = self._task.predict(outputs) if self._task.predict else outputs
            states = {
                name: metric.of_batch(found, targets) for name, metric in self._metrics.items()
            }
        return BatchResult(loss, count, states)


def combine(
    metrics: Mapping[str, Metric], results: Iterable[BatchResult], *, of_client: bool = False
) -> Scores:
    """Return the scores of a test from its batches' results, added up in the order given.

    Args:
        metrics: The task's (`Task.test_metrics`).
        results: Of all batches, at least one.
        of_client: As for `value_or_nan`.
    """
    found = list(results)
    loss, predictions = 0.0, 0
    for batch in found:
        loss += batch.loss
        predictions += batch.predictions
    values = {
        name: value_or_nan(
            name, metric, [batch.states[name] for batch in found], of_client=of_client
        )
        for name, metric in metrics.items()
    }
    return Scores(loss / predictions, values)
