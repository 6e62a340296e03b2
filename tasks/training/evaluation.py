"""Evaluation of a model on examples, in batches whose results are added in a fixed order."""

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tasks.base import Task, count_predictions
from tasks.model_arrays import state_of
from tasks.training.batch_size import efficient_batch_size
from tasks.training.examples import Examples
from tasks.training.hidden_state import HiddenState
from tasks.training.layers import runs_own_code
from tasks.training.parts import loss_count
from tasks.training.random_streams import evaluation_seed, seeded
from tasks.training.transfers import staged

Parameters = list[NDArray[np.generic]]
# Of one batch: the sum of the losses, the number of correct predictions, that of predictions.
BatchResult = tuple[float, float, int]


def load_arrays(model: nn.Module, arrays: Mapping[str, NDArray[np.generic]]) -> None:
    """Copy arrays into those of the model that have their names.

    Raises:
        ValueError: The model has no array of that name, or one of another shape.
    """
    state = state_of(model)
    with torch.no_grad():
        for name, array in arrays.items():
            if name not in state:
                raise ValueError(f"the model has no array {name!r}")
            target = state[name]
            if tuple(target.shape) != array.shape:
                raise ValueError(f"array {name!r} is {array.shape}, not {tuple(target.shape)}")
            target.copy_(staged(array, target.device), non_blocking=True)


class Evaluator:
    """Evaluates a model batch by batch; no batch's result depends on another's.

    Draws in the model or the loss are seeded by the batch's place, and what the model keeps from
    pass to pass is as it was when this was made.

    Args:
        task: The learning problem.
        model: A network of the task that has the arrays to evaluate.
        seed: The run's seed.
        client: Whose test examples they are; None for the data set's.
    """

    def __init__(self, task: Task, model: nn.Module, seed: int, client: int | None = None) -> None:
        self._task, self._model, self._seed, self._client = task, model, seed, client
        self._hidden = HiddenState(model)
        self._draws = not draws_from_torch_only(task, model)  # torch's layers draw in training only

    @torch.no_grad()
    def batch(self, place: int, inputs: Tensor, targets: Tensor) -> BatchResult:
        """Return the sum of the losses and the numbers of correct and of all predictions.

        Args:
            place: The place of the batch's first example.
            inputs: Prepared inputs.
            targets: Their targets.

        Raises:
            ValueError: The task counts more correct predictions than there are.
        """
        self._hidden.restore()
        self._model.eval()
        with self._seeded(place, targets.device):
            outputs = self._model(inputs)
            count = count_predictions(targets)
            loss = self._task.loss(outputs, targets).item() * count
            correct = self._task.count_correct(outputs, targets)
        return loss, correct, count

    def _seeded(self, place: int, device: torch.device) -> AbstractContextManager[None]:
        if not self._draws:
            return nullcontext()
        return seeded(evaluation_seed(self._seed, place, self._client), device)


def draws_from_torch_only(task: Task, model: nn.Module) -> bool:
    """Return whether training and testing run no code of the user's that could draw elsewhere."""
    is_known = loss_count(task.loss) is not None
    return task.augment is None and is_known and not runs_own_code(model)


def combine(results: Iterable[BatchResult]) -> tuple[float, float]:
    """Return (mean loss, accuracy), added up in the order given."""
    loss = correct = 0.0
    predictions = 0
    for batch in results:
        loss += batch[0]
        correct += batch[1]
        predictions += batch[2]
    return loss / predictions, correct / predictions


def evaluate(
    task: Task, model: nn.Module, examples: Examples, seed: int, client: int
) -> tuple[float, float]:
    """Return (mean loss, accuracy) of the model on a client's examples.

    The loss is the mean of the batches' losses, by their numbers of predictions.
    """
    first, _ = examples.slice(0, 1)
    places = examples.places(efficient_batch_size(model, first, first.device))
    evaluator = Evaluator(task, model, seed, client)
    return combine(evaluator.batch(start, *examples.slice(start, end)) for start, end in places)
