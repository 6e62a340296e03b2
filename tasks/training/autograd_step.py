"""SGD steps on a network's weights.

Two kinds of steps give the same weights but for rounding: `autograd_step` works for any network,
`tasks.training.dense_step.DenseStep` is faster for many small ones.
"""

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from tasks.base import count_predictions
from tasks.training.batch_size import efficient_batch_size
from tasks.training.dense_step import DenseStep, split_model
from tasks.training.sgd_update import Loss, WeightUpdate, gradients

# Takes one step: prepared inputs, their targets, the learning rate -> the loss before the step.
Step = Callable[[Tensor, Tensor, float], Tensor]


def make_step(
    model: nn.Module, loss: Loss, weights: Sequence[Tensor], update: WeightUpdate
) -> Step:
    """Return the function that takes a network's steps.

    Args:
        model: The network, in training mode.
        loss: The mean loss of (logits, targets).
        weights: The model's trained weights.
        update: Changes them.
    """
    general = autograd_step(model, loss, weights, update)
    split = split_model(model)
    if split is None or loss is not functional.cross_entropy:
        return general
    dense = DenseStep(split, update)
    limit = 0

    def step(inputs: Tensor, targets: Tensor, learning_rate: float) -> Tensor:
        nonlocal limit
        limit = limit or efficient_batch_size(model, inputs, inputs.device)
        use_dense = len(inputs) <= limit and targets.dtype == torch.int64
        return (dense if use_dense else general)(inputs, targets, learning_rate)

    return step


def autograd_step(
    model: nn.Module, loss: Loss, weights: Sequence[Tensor], update: WeightUpdate
) -> Step:
    """Return what takes the steps of any network; the arguments are those of `make_step`.

    The gradient of a large batch is the sum of those of its parts, which are processed faster,
    unless the network normalises by the batch's mean and variance.
    """

    def step(inputs: Tensor, targets: Tensor, learning_rate: float) -> Tensor:
        size = part_size(model, inputs, len(inputs))
        if size < len(inputs):
            parts = zip(torch.split(inputs, size), torch.split(targets, size), strict=True)
            predictions = count_predictions(targets)
            found, by_weight = mean_gradients(model, loss, weights, parts, predictions)
        else:
            found = loss(model(inputs), targets)
            by_weight = gradients(found, weights)
        with torch.no_grad():
            update.add(weights, by_weight, learning_rate)
        return found.detach()

    return step


def part_size(model: nn.Module, inputs: Tensor, count: int) -> int:
    """Return how many of ``count`` examples to take a gradient of at a time.

    It is all of them where the network normalises by the batch's mean and variance.

    Args:
        model: The network.
        inputs: Prepared inputs, at least one, on the model's device; only their shape counts.
        count: How many examples the gradient is of.
    """
    size = efficient_batch_size(model, inputs, inputs.device)
    return count if count <= size or normalises_batches(model) else size


def normalises_batches(model: nn.Module) -> bool:
    """Return whether the network normalises by the batch's mean and variance."""
    kinds = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d
    return any(isinstance(module, kinds) for module in model.modules())


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
        found = gradients(part, weights)
        if sums:
            torch._foreach_add_(sums, found)
        else:
            sums = found
        total += part.detach()
    return total, sums
