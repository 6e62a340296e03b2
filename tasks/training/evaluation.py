"""Evaluation of a model on examples, in batches whose results are added in a fixed order."""

from collections.abc import Iterable, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tasks.base import Task, count_predictions
from tasks.training.batch_size import efficient_batch_size
from tasks.training.examples import Examples
from tasks.training.transfers import staged

Parameters = list[NDArray[np.generic]]
# Of one batch: the sum of the losses, the number of correct predictions, that of predictions.
BatchResult = tuple[float, float, int]


def load_arrays(model: nn.Module, arrays: Mapping[str, NDArray[np.generic]]) -> dict[str, Tensor]:
    """Copy arrays into those of the model that have their names; return these by name.

    Raises:
        ValueError: The model has no array of that name, or one of another shape.
    """
    state: dict[str, Tensor] = model.state_dict(keep_vars=True)
    with torch.no_grad():
        for name, array in arrays.items():
            if name not in state:
                raise ValueError(f"the model has no array {name!r}")
            target = state[name]
            if tuple(target.shape) != array.shape:
                raise ValueError(f"array {name!r} is {array.shape}, not {tuple(target.shape)}")
            target.copy_(staged(array, target.device), non_blocking=True)
    return {name: state[name] for name in arrays}


@torch.no_grad()
def evaluate_batch(task: Task, model: nn.Module, inputs: Tensor, targets: Tensor) -> BatchResult:
    """Return the sum of the losses and the numbers of correct and of all predictions."""
    model.eval()
    logits = model(inputs)
    count = count_predictions(targets)
    loss = task.loss(logits, targets).item() * count
    return loss, task.correct(logits, targets).item(), count


def combine(results: Iterable[BatchResult]) -> tuple[float, float]:
    """Return (mean loss, accuracy), added up in the order given."""
    loss = correct = 0.0
    predictions = 0
    for batch in results:
        loss += batch[0]
        correct += batch[1]
        predictions += batch[2]
    return loss / predictions, correct / predictions


def evaluate(task: Task, model: nn.Module, examples: Examples) -> tuple[float, float]:
    """Return (mean loss, accuracy) of the model on the examples."""
    first, _ = examples.slice(0, 1)
    size = efficient_batch_size(model, first, first.device)
    batches = examples.batches(size)
    return combine(evaluate_batch(task, model, *batch) for batch in batches)
