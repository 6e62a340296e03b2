"""Checks of a task's data, before the model sees them."""

import inspect
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from tasks.base import Task, ignored_target
from tasks.checking.finding import Finding, TaskError
from tasks.data.dataset import NO_PREDICTION, Dataset, Split
from tasks.training.examples import Examples
from tasks.training.random_streams import seeded

CPU = torch.device("cpu")
FEW = 8
MAX_RATE = 1e6  # as the config's


def few_rows(split: Split) -> Tensor:
    """Return `FEW` rows from the whole split, those with the least and the largest target first."""
    flat = split.targets.reshape(len(split), -1)
    extremes = [int(flat.min(axis=1).argmin()), int(flat.max(axis=1).argmax())]
    others = np.linspace(0, len(split) - 1, FEW - 2, dtype=int)
    return torch.tensor([*extremes, *others][: len(split)])


def few_examples(
    task: Task, split: Split, *, training: bool, seed: int = 0, rows: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the prepared inputs and the targets of some examples, by default of `few_rows`.

    What is drawn has the seed.

    Raises:
        TaskError: ``prepare`` or ``augment`` failed, or did not return a tensor of them.
    """
    rows = few_rows(split) if rows is None else rows
    name = "augment" if training and task.augment is not None else "prepare"
    kind = f"inputs {split.inputs.dtype} {(len(rows), *split.inputs.shape[1:])}"
    try:
        with seeded(seed, CPU):
            stored = Examples.stored(task, split, CPU, training=training)
            inputs, targets = replace(stored, rows=rows).slice(0, len(rows))
    except Exception as error:
        raise TaskError(name, f"raised {type(error).__name__} for {kind}: {error}") from error
    if not isinstance(inputs, Tensor) or len(inputs) != len(rows):
        found = tuple(inputs.shape) if isinstance(inputs, Tensor) else type(inputs).__name__
        raise TaskError(name, f"returned {found} for {kind}: return a tensor of as many inputs")
    return inputs, targets


def check_examples(task: Task, data: Dataset) -> Iterator[Finding]:
    """Yield what the data are.

    Raises:
        TaskError: There are none for training, a target is negative that is not no prediction, the
            test examples are of another kind, or inputs are not finite once they are prepared.
    """
    train, test = data.train, data.test
    if not len(train):
        raise TaskError("dataset", "there are no training examples")
    for name, split in (("training", train), ("test", test)):
        if not len(split):
            continue
        _check_targets(task, split, name)
        _check_finite(task, split, name)
    if len(test) and _kind(test) != _kind(train):
        raise TaskError("dataset", f"training inputs are {_kind(train)}, test inputs {_kind(test)}")
    targets = f"targets {train.targets.min()} to {train.targets.max()}"
    if train.targets.ndim > 1:
        targets += f" {train.targets.shape[1:]}"
    yield Finding(
        "ok",
        "dataset",
        f"{data.description}: {len(train):,} + {len(test):,} examples, inputs {_kind(train)}, "
        f"{targets}",
    )


def check_settings(task: Task) -> None:
    """Check the numbers that a task gives, and that its loss is one; TaskError else."""
    rate, target = task.learning_rate, task.target_accuracy
    if not isinstance(rate, float | int) or not 0 < rate <= MAX_RATE:
        raise TaskError("learning_rate", f"is {rate!r}: give a number above 0")
    if target is not None and (not isinstance(target, float | int) or not 0 <= target <= 1):
        raise TaskError("target_accuracy", f"is {target!r}: give a share from 0 to 1")
    if inspect.isclass(task.loss):
        raise TaskError("loss", f"is a class: give an object of it, {task.loss.__name__}()")


def _kind(split: Split) -> str:
    return f"{split.inputs.dtype} {split.inputs.shape[1:]}"


def _check_targets(task: Task, split: Split, name: str) -> None:
    """Check that negative targets are no predictions, and that there are predictions."""
    negative = split.targets[split.targets < 0]
    allowed = {NO_PREDICTION, ignored_target(task.loss)}
    others = negative[~np.isin(negative, list(allowed))]
    if others.size:
        text = f"there are {name} targets of {others.min()}, and a negative target is no prediction"
        raise TaskError("dataset", f"{text}: number the classes from 0, or give {NO_PREDICTION}")
    if negative.size == split.targets.size:
        raise TaskError("dataset", f"the {name} examples have no target to be predicted")


def _check_finite(task: Task, split: Split, name: str) -> None:
    inputs = split.inputs
    if inputs.dtype.kind != "f" or not inputs.size:
        return
    with np.errstate(invalid="ignore"):
        if np.isfinite(inputs.min() + inputs.max()):  # no copy of the data, unlike isfinite of all
            return
    bad = [number for number, one in enumerate(inputs) if not np.isfinite(one).all()]
    first = Split(inputs[bad[:1]], split.targets[bad[:1]])
    prepared, _ = few_examples(task, first, training=False)
    if not prepared.isfinite().all():
        raise TaskError(
            "dataset",
            f"{len(bad)} {name} examples have NaN or infinite inputs, the first is number "
            f"{bad[0]}: leave them out, or fill them in prepare",
        )
