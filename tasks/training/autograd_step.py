"""SGD steps on a network's weights.

Two kinds of steps give the same weights up to rounding: `autograd_step` works for any network,
`tasks.training.dense_step.DenseStep` is faster for many small networks.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tasks.structure import first_leaf
from tasks.training.batch_size import efficient_batch_size
from tasks.training.dense_step import DenseStep, split_model
from tasks.training.examples import call_model, number_of, parts_of
from tasks.training.parts import Count
from tasks.training.sgd_update import Loss, WeightUpdate, gradients

# Takes one step: prepared inputs, their targets, the learning rate -> the loss before the step.
Step = Callable[[Any, Any, float], Tensor]
# (model, prepared inputs) -> outputs.
Call = Callable[[nn.Module, Any], Any]


def make_step(
    model: nn.Module,
    loss: Loss,
    weights: Sequence[Tensor],
    update: WeightUpdate,
    count: Count | None = None,
    call: Call = call_model,
) -> Step:
    """Return the function that takes a network's steps.

    Args:
        model: The network, in training mode.
        loss: The loss of (outputs, targets).
        weights: The model's trained weights.
        update: Changes them.
        count: Counts a part of a batch (`tasks.training.parts.part_count`); None where batches must
            stay whole.
        call: Returns the model's outputs for some inputs.
    """
    general = autograd_step(model, loss, weights, update, count, call)
    split = split_model(model)
    plain = loss is functional.cross_entropy and call is call_model
    if split is None or not plain or not update.is_linear:
        return general
    dense = DenseStep(split, update)
    limit = 0

    def step(inputs: Any, targets: Any, learning_rate: float) -> Tensor:
        nonlocal limit
        limit = limit or efficient_batch_size(model, inputs, inputs.device)
        use_dense = len(inputs) <= limit and targets.dtype == torch.int64
        return (dense if use_dense else general)(inputs, targets, learning_rate)

    return step


def autograd_step(
    model: nn.Module,
    loss: Loss,
    weights: Sequence[Tensor],
    update: WeightUpdate,
    count: Count | None = None,
    call: Call = call_model,
) -> Step:
    """Return what takes the steps of any network; the arguments are those of `make_step`.

    The gradient of a large batch is the sum of those of its parts, which are processed faster.
    """

    def step(inputs: Any, targets: Any, learning_rate: float) -> Tensor:
        number = size = number_of(inputs)
        if count is not None:
            size = part_size(model, inputs, number)
        if count is not None and size < number:
            parts = zip(
                parts_of(inputs, size, number), parts_of(targets, size, number), strict=True
            )
            whole = int(count(number, targets))
            found, by_weight = mean_gradients(model, loss, weights, parts, count, whole, call)
        else:
            found = loss(call(model, inputs), targets)
            by_weight = gradients(found, weights)
        with torch.no_grad():
            update.add(weights, by_weight, learning_rate)
        return found.detach()

    return step


def part_size(model: nn.Module, inputs: Any, count: int) -> int:
    """Return how many of ``count`` examples to differentiate at a time.

    Args:
        model: The network.
        inputs: Prepared inputs, at least one, on the model's device; only their shape counts.
        count: The number of examples of the gradient.
    """
    return min(count, efficient_batch_size(model, inputs, first_leaf(inputs).device))


def mean_gradients(
    model: nn.Module,
    loss: Loss,
    weights: Sequence[Tensor],
    parts: Iterable[tuple[Any, Any]],
    count: Count | None,
    whole: int,
    call: Call = call_model,
) -> tuple[Tensor, list[Tensor]]:
    """Return the mean loss of a batch in parts, and its gradients.

    Args:
        model: The network.
        loss: The loss of (outputs, targets) of a part.
        weights: The model's weights to differentiate by.
        parts: Prepared inputs and their targets, at least one pair.
        count: Counts a part; None for a single part.
        whole: What it counts of all parts.
        call: Returns the model's outputs for some inputs.
    """
    total = torch.zeros((), device=weights[0].device)
    sums: list[Tensor] = []
    for inputs, targets in parts:
        part = loss(call(model, inputs), targets)
        if count is not None:
            part = part * (count(number_of(inputs), targets) / whole)
        found = gradients(part, weights)
        if sums:
            torch._foreach_add_(sums, found)
        else:
            sums = found
        total += part.detach()
    return total, sums
