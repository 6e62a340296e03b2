"""The steps of a client's training: a backward pass and an optimiser's step for each batch."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from tasks.base import Task
from tasks.model_arrays import ModelArrays, state_of
from tasks.training.batch_size import efficient_batch_size
from tasks.training.dense_step import DenseStep, split_model
from tasks.training.examples import (
    call_in_bf16,
    call_model,
    count_predictions,
    number_of,
    parts_of,
)
from tasks.training.optimizers import Memory, OptimizerUpdate, finite_arrays
from tasks.training.sgd_update import SGDUpdate
from tasks.training.training_settings import TrainingSettings

# Takes one step: prepared inputs, their targets, the learning rate -> the loss before the step.
Step = Callable[[Any, Any, float], Tensor]


def take_steps(
    task: Task,
    model: nn.Module,
    arrays: ModelArrays,
    batches: Iterable[tuple[Any, Any]],
    learning_rates: Iterable[float],
    settings: TrainingSettings,
    memory: Memory | None = None,
    offset: Mapping[str, NDArray[np.generic]] | None = None,
) -> float:
    """Take one step of the optimiser per batch, from the model's current weights.

    Args:
        task: The learning problem.
        model: Its network.
        arrays: The classes of the network's arrays.
        batches: Prepared inputs and their targets, at least one pair.
        learning_rates: The learning rate of every step, at least as many.
        settings: The optimiser and its arguments, momentum, weight decay, mu, clipping, precision.
        memory: As in `TaskClient.train`.
        offset: As in `TaskClient.train`.

    Returns:
        The mean of the batches' losses.
    """
    if not model.training:  # else it costs a small model's step
        model.train()
    named = trained_weights(model, arrays)
    weights = list(named.values())
    offsets = [_like(w, offset.get(name)) for name, w in named.items()] if offset else []
    buffers: dict[str, Tensor] = {}
    if not task.in_parts or not settings.is_sgd:
        update: OptimizerUpdate | SGDUpdate = OptimizerUpdate(weights, settings, offsets, memory)
    else:
        if settings.momentum > 0:
            buffers = {name: _like(w, (memory or {}).get(name)) for name, w in named.items()}
        update = SGDUpdate(weights, settings, list(buffers.values()), offsets)
    step = _step(task, model, update, settings)
    total = torch.zeros((), device=weights[0].device)
    steps = 0
    for (inputs, targets), learning_rate in zip(batches, learning_rates, strict=False):
        total += step(inputs, targets, learning_rate)
        steps += 1
    if memory is not None:
        memory.clear()
        memory.update(
            update.kept() if isinstance(update, OptimizerUpdate) else finite_arrays(buffers)
        )
    return total.item() / steps


def trained_weights(model: nn.Module, arrays: ModelArrays) -> dict[str, Tensor]:
    """Return the weights that are trained, by name."""
    state = state_of(model)
    return {name: state[name] for name in arrays.trained}


def backward(
    task: Task,
    model: nn.Module,
    parts: Iterable[tuple[Any, Any]],
    settings: TrainingSettings,
    whole: Tensor | int | None = None,
) -> Tensor:
    """Add the gradient of a batch's mean loss to each weight's ``grad``; return that loss.

    Args:
        task: Has the mean loss of (outputs, targets) of a part.
        model: The network, in training mode.
        parts: Prepared inputs and their targets, at least one pair; one is the whole batch.
        settings: The precision.
        whole: The number of predictions in all parts, by which each is weighted; None for one part.
    """
    call = call_in_bf16 if settings.precision == "bf16" else call_model
    total: Tensor | None = None
    for inputs, targets in parts:
        part = task.loss(call(model, inputs), targets)
        if whole is not None:
            part = part * (count_predictions(number_of(inputs), targets) / whole)
        part.backward()  # type: ignore[no-untyped-call]
        total = part.detach() if total is None else total + part.detach()
    assert total is not None
    return total


def _step(
    task: Task,
    model: nn.Module,
    update: OptimizerUpdate | SGDUpdate,
    settings: TrainingSettings,
) -> Step:
    """Return what takes a step: of the whole batch, by autograd and the optimiser.

    If the task says ``in_parts``, large batches are cut, and others are trained by `DenseStep`
    where it can train the network.
    """
    dense = None
    if isinstance(update, SGDUpdate) and task.loss is functional.cross_entropy:
        is_plain = settings.precision != "bf16" and not settings.gradient_clip
        split = split_model(model) if is_plain else None
        dense = None if split is None else DenseStep(split, update)

    limit = 0

    def step(inputs: Any, targets: Any, learning_rate: float) -> Tensor:
        nonlocal limit
        parts, whole = iter([(inputs, targets)]), None
        if task.in_parts:
            number = number_of(inputs)
            limit = limit or efficient_batch_size(task, model, inputs)
            if dense is not None and number <= limit and targets.dtype == torch.int64:
                return dense(inputs, targets, learning_rate)
            if limit < number:
                whole = int(count_predictions(number, targets))
                cut = (parts_of(values, limit, number) for values in (inputs, targets))
                parts = zip(*cut, strict=True)
        loss = backward(task, model, parts, settings, whole)
        update.step(learning_rate)
        return loss

    return step


def _like(weight: Tensor, array: NDArray[np.generic] | None) -> Tensor:
    """Return the array in the weight's layout, which may be channels-last; zeros for None."""
    if array is None:
        return torch.zeros_like(weight)
    return torch.empty_like(weight).copy_(torch.tensor(array))
