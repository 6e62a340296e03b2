"""Which batches may be processed in parts, and the weight of each part.

The gradient of the mean loss of a batch is the weighted sum of its parts' gradients if the loss is
a plain mean over predictions and no layer mixes examples. For other losses, such as class-weighted
losses, the mean of the parts' means is another number.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tasks.base import Task
from tasks.training.layers import looks_at_one_example

# Means over the predictions, those whose target is not negative; and means over all entries.
OVER_PREDICTIONS = (functional.cross_entropy, functional.nll_loss)
OVER_ENTRIES = (
    functional.mse_loss, functional.l1_loss, functional.smooth_l1_loss, functional.huber_loss,
    functional.binary_cross_entropy, functional.binary_cross_entropy_with_logits,
)  # fmt: skip
MODULES_OVER_PREDICTIONS = (nn.CrossEntropyLoss, nn.NLLLoss)
MODULES_OVER_ENTRIES = (
    nn.MSELoss, nn.L1Loss, nn.SmoothL1Loss, nn.HuberLoss, nn.BCELoss, nn.BCEWithLogitsLoss
)  # fmt: skip
# Keywords of a `functools.partial` that leave the loss a plain mean.
HARMLESS = {"label_smoothing", "beta", "delta"}

# (the number of examples, their targets) of a part -> how much of the mean it is.
Count = Callable[[int, Any], Tensor | int]


def part_count(task: Task, model: nn.Module) -> Count | None:
    """Return the function that counts a part of a batch; None if batches must stay whole."""
    if task.in_parts is not None:
        return count_predictions if task.in_parts else None
    return loss_count(task.loss) if looks_at_one_example(model) else None


def loss_count(loss: object) -> Count | None:
    """Return the function that counts a part for a loss; None if it may not be a plain mean.

    Args:
        loss: A function or module of torch, or a `functools.partial` of one, that is a mean over
            predictions or over all entries; anything else is not known.
    """
    if isinstance(loss, partial):
        return loss_count(loss.func) if not loss.args and loss.keywords.keys() <= HARMLESS else None
    if loss in OVER_PREDICTIONS:
        return count_predictions
    if loss in OVER_ENTRIES:
        return count_examples
    if getattr(loss, "reduction", "") != "mean" or getattr(loss, "weight", None) is not None:
        return None
    if type(loss) in MODULES_OVER_PREDICTIONS:
        return count_predictions if getattr(loss, "ignore_index", 0) < 0 else None
    return count_examples if type(loss) in MODULES_OVER_ENTRIES else None


def count_predictions(number: int, targets: Any) -> Tensor | int:
    """Return how many predictions a part has, on its device, which is not waited for.

    Those are the integer targets that are not negative; with any other targets, the examples.
    """
    if isinstance(targets, Tensor) and targets.dtype == torch.int64:
        return (targets >= 0).sum()
    return number


def count_examples(number: int, targets: Any) -> int:
    """Return how many examples a part has."""
    del targets
    return number
