"""SGD steps on a network's weights.

Two kinds of steps give the same weights but for rounding: `AutogradStep` works for any network,
`tasks.training.dense_step.DenseStep` is faster for many small ones.
"""

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn

from tasks.base import count_predictions
from tasks.training.batch_size import efficient_batch_size
from tasks.training.dense_step import DenseStep, split_model
from tasks.training.sgd_update import Loss, WeightUpdate

# Takes one step: prepared inputs, their targets, the learning rate -> the loss before the step.
Step = Callable[[Tensor, Tensor, float], Tensor]


def make_step(
    model: nn.Module, loss: Loss, weights: Sequence[Tensor], update: WeightUpdate
) -> Step:
    """Return what takes the steps of a network.

    Args:
        model: The network, in training mode.
        loss: The mean loss of (logits, targets).
        weights: Those of the model's that are trained.
        update: Changes them.
    """
    general = AutogradStep(model, loss, weights, update)
    split = split_model(model)
    if split is None:
        return general
    dense = DenseStep(split, loss, update)
    limit = 0

    def step(inputs: Tensor, targets: Tensor, learning_rate: float) -> Tensor:
        nonlocal limit
        limit = limit or efficient_batch_size(model, inputs, inputs.device)
        return (dense if len(inputs) <= limit else general)(inputs, targets, learning_rate)

    return step


class AutogradStep:
    """Steps of any network.

    The gradient of a large batch is the sum of those of its parts, which are processed faster,
    unless the network normalises by the batch's mean and variance.

    Args:
        model: The network.
        loss: The mean loss of (logits, targets).
        weights: Those of the model's that are trained.
        update: Changes them.
    """

    def __init__(
        self, model: nn.Module, loss: Loss, weights: Sequence[Tensor], update: WeightUpdate
    ) -> None:
        self._model, self._loss, self._weights, self._update = model, loss, weights, update

    def __call__(self, inputs: Tensor, targets: Tensor, learning_rate: float) -> Tensor:
        """Take one step; return the loss before it."""
        loss, gradients = self._gradients(inputs, targets)
        with torch.no_grad():
            self._update.add(self._weights, gradients, learning_rate)
        return loss

    def _gradients(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Sequence[Tensor]]:
        """Return the loss and its gradients, of a large batch in parts."""
        size = part_size(self._model, inputs, len(inputs))
        if size < len(inputs):
            parts = zip(torch.split(inputs, size), torch.split(targets, size), strict=True)
            predictions = count_predictions(targets)
            return mean_gradients(self._model, self._loss, self._weights, parts, predictions)
        loss = self._loss(self._model(inputs), targets)
        gradients = torch.autograd.grad(
            loss, self._weights, allow_unused=True, materialize_grads=True
        )
        return loss.detach(), gradients


def part_size(model: nn.Module, inputs: Tensor, count: int) -> int:
    """Return how many of ``count`` examples to take a gradient of at a time.

    It is all of them where the network normalises by the batch's mean and variance.

    Args:
        model: The network.
        inputs: Prepared inputs, at least one, where the model is; only their shape counts.
        count: How many examples the gradient is of.
    """
    size = efficient_batch_size(model, inputs, inputs.device)
    kinds = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d
    if count <= size or any(isinstance(module, kinds) for module in model.modules()):
        return count
    return size


def mean_gradients(
    model: nn.Module,
    loss: Loss,
    weights: Sequence[Tensor],
    parts: Iterable[tuple[Tensor, Tensor]],
    predictions: int,
) -> tuple[Tensor, list[Tensor]]:
    """Return the mean loss over the predictions of a batch in parts, and its gradients.

    Args:
        model: The network.
        loss: The mean loss of (logits, targets) of a part.
        weights: The model's weights to differentiate by.
        parts: Prepared inputs and their targets, at least one pair.
        predictions: How many predictions all parts have.
    """
    total = torch.zeros((), device=weights[0].device)
    sums: list[Tensor] = []
    for inputs, targets in parts:
        share = (targets >= 0).sum() / predictions  # on the device, which is not waited for
        part = loss(model(inputs), targets) * share
        found = torch.autograd.grad(part, weights, allow_unused=True, materialize_grads=True)
        if sums:
            torch._foreach_add_(sums, list(found))
        else:
            sums = list(found)
        total += part.detach()
    return total, sums
