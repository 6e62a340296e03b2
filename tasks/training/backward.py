"""The gradient of a batch's mean loss, by one backward pass or by one for each of its parts."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from tasks.training.examples import call_in_bf16, call_model, number_of
from tasks.training.training_settings import TrainingSettings

# The loss of (outputs, targets).
Loss = Callable[[Any, Any], Tensor]
# (model, prepared inputs) -> outputs.
Call = Callable[[nn.Module, Any], Any]


def backward(
    model: nn.Module,
    loss: Loss,
    parts: Iterable[tuple[Any, Any]],
    whole: Tensor | int | None = None,
    call: Call = call_model,
) -> Tensor:
    """Add the gradient of a batch's mean loss to each weight's ``grad``; return that loss.

    Args:
        model: The network, in training mode.
        loss: The mean loss of (outputs, targets) of a part.
        parts: Prepared inputs and their targets, at least one pair; one is the whole batch.
        whole: The number of predictions in all parts, by which each is weighted; None for one part.
        call: Returns the model's outputs for some inputs.
    """
    total: Tensor | None = None
    for inputs, targets in parts:
        part = loss(call(model, inputs), targets)
        if whole is not None:
            part = part * (count_predictions(number_of(inputs), targets) / whole)
        part.backward()  # type: ignore[no-untyped-call]
        total = part.detach() if total is None else total + part.detach()
    assert total is not None
    return total


def count_predictions(number: int, targets: Any) -> Tensor | int:
    """Return how many predictions some examples have, on their device, which is not waited for.

    Those are the integer targets that are not negative; with any other targets, the examples.
    """
    if isinstance(targets, Tensor) and targets.dtype == torch.int64:
        return (targets >= 0).sum()
    return number


def model_call(settings: TrainingSettings) -> Call:
    """Return what calls a model in the precision of the settings."""
    return call_in_bf16 if settings.precision == "bf16" else call_model
