"""The steps of a client's training: an optimiser step for each batch."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tasks.base import Task
from tasks.model_arrays import ModelArrays
from tasks.training.autograd_step import Call, make_step
from tasks.training.examples import call_in_bf16, call_model
from tasks.training.optimizers import Memory, OptimizerUpdate
from tasks.training.parts import part_count
from tasks.training.sgd_update import WeightUpdate
from tasks.training.trained_weights import staying_trained, trained_weights
from tasks.training.training_settings import TrainingSettings
from tasks.training.transfers import staged, to_arrays


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
    set_training_mode(model)
    named = trained_weights(model, arrays)
    weights = list(named.values())
    memory = {} if memory is None else memory
    offsets = [_like(w, offset.get(name)) for name, w in named.items()] if offset else []
    update, kept = _update(named, settings, memory, offsets)
    step = make_step(
        model, task.loss, weights, update, part_count(task, model), model_call(settings)
    )
    total = torch.zeros((), device=weights[0].device)
    steps = 0
    with staying_trained(model, arrays, named):
        for (inputs, targets), learning_rate in zip(batches, learning_rates, strict=False):
            total += step(inputs, targets, learning_rate)
            steps += 1
    found = kept()
    memory.update(zip(found, to_arrays(found.values()), strict=True))
    return total.item() / steps


def set_training_mode(model: nn.Module) -> None:
    """Put a model into training mode; this costs a pass over all modules only if it was not."""
    if not model.training:
        model.train()


def model_call(settings: TrainingSettings) -> Call:
    """Return what calls a model in the precision of the settings."""
    return call_in_bf16 if settings.precision == "bf16" else call_model


def _update(
    named: Mapping[str, Tensor],
    settings: TrainingSettings,
    memory: Memory,
    offsets: Sequence[Tensor],
) -> tuple[WeightUpdate, Callable[[], Mapping[str, Tensor]]]:
    """Return how gradients change the weights, and what returns what is kept of it."""
    if settings.optimizer:
        found = OptimizerUpdate(named, settings, offsets, memory)
        return found, found.kept if settings.keeps_memory else dict
    # torch.optim.SGD takes the same steps; but constructing one for each client and round costs
    # more than a small model's step, and the first construction imports torch's compiler (2 s).
    buffers = {
        name: _like(w, memory.get(name)) for name, w in named.items() if settings.momentum > 0
    }
    update = WeightUpdate(list(named.values()), settings, list(buffers.values()), offsets)
    return update, lambda: buffers


def _like(weight: Tensor, array: NDArray[np.generic] | None) -> Tensor:
    """Return the array in the weight's layout, which may be channels-last; zeros for None."""
    if array is None:
        return torch.zeros_like(weight)
    return torch.empty_like(weight).copy_(staged(array, weight.device), non_blocking=True)
