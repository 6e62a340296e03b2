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
from tasks.training.backward import backward, count_predictions, model_call
from tasks.training.batch_size import efficient_batch_size
from tasks.training.dense_step import DenseStep, split_model
from tasks.training.examples import call_model, number_of, parts_of
from tasks.training.optimizers import Memory, OptimizerUpdate, finite_arrays
from tasks.training.sgd_update import SGDUpdate
from tasks.training.training_settings import TrainingSettings
from tasks.training.transfers import staged

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
        memory: As in `TaskClient.fit`.
        offset: As in `TaskClient.fit`.

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
        step = _step(task, model, update, settings)
    else:
        if settings.momentum > 0:
            buffers = {name: _like(w, (memory or {}).get(name)) for name, w in named.items()}
        update = SGDUpdate(weights, settings, list(buffers.values()), offsets)
        step = _dense_step(task, model, update, settings)
    total = torch.zeros((), device=weights[0].device)
    steps = 0
    for (inputs, targets), learning_rate in zip(batches, learning_rates, strict=False):
        total += step(inputs, targets, learning_rate)
        steps += 1
    if memory is not None:
        memory.clear()
        kept = isinstance(update, OptimizerUpdate)
        memory.update(update.kept() if kept else finite_arrays(buffers))  # type: ignore[union-attr]
    return total.item() / steps


def trained_weights(model: nn.Module, arrays: ModelArrays) -> dict[str, Tensor]:
    """Return the weights that are trained, by name."""
    state = state_of(model)
    return {name: state[name] for name in arrays.trained}


def _step(
    task: Task, model: nn.Module, update: OptimizerUpdate | SGDUpdate, settings: TrainingSettings
) -> Step:
    """Return what takes a step by autograd: of the whole batch, or in parts if the task says so."""
    call, limit = model_call(settings), 0

    def step(inputs: Any, targets: Any, learning_rate: float) -> Tensor:
        nonlocal limit
        number, parts, whole = number_of(inputs), iter([(inputs, targets)]), None
        if task.in_parts:
            limit = limit or efficient_batch_size(task, model, inputs)
            if limit < number:
                whole = int(count_predictions(number, targets))
                split = (parts_of(values, limit, number) for values in (inputs, targets))
                parts = zip(*split, strict=True)
        loss = backward(model, task.loss, parts, whole, call)
        update.step(learning_rate)
        return loss

    return step


def _dense_step(
    task: Task, model: nn.Module, update: SGDUpdate, settings: TrainingSettings
) -> Step:
    """Return what takes a step by `DenseStep` where that can train the network, else as `_step`."""
    general, split = _step(task, model, update, settings), split_model(model)
    plain = task.loss is functional.cross_entropy and model_call(settings) is call_model
    if split is None or not plain or settings.gradient_clip:
        return general
    dense, limit = DenseStep(split, update), 0

    def step(inputs: Any, targets: Any, learning_rate: float) -> Tensor:
        nonlocal limit
        limit = limit or efficient_batch_size(task, model, inputs)
        use_dense = len(inputs) <= limit and targets.dtype == torch.int64
        return (dense if use_dense else general)(inputs, targets, learning_rate)

    return step


def _like(weight: Tensor, array: NDArray[np.generic] | None) -> Tensor:
    """Return the array in the weight's layout, which may be channels-last; zeros for None."""
    if array is None:
        return torch.zeros_like(weight)
    return torch.empty_like(weight).copy_(staged(array, weight.device), non_blocking=True)
