"""Checks of a task's data, before the model sees them."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from tasks.base import Task
from tasks.checking.finding import Finding, TaskError
from tasks.data.dataset import Dataset, Split
from tasks.training.examples import Examples
from tasks.training.random_streams import seeded

CPU = torch.device("cpu")
FEW = 8


def few_examples(
    task: Task, split: Split, *, training: bool, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Return the prepared inputs and the targets of `FEW` examples, from the whole split.

    Those with the smallest and the largest target are the first. What is drawn has the seed.

    Raises:
        TaskError: ``prepare`` or ``augment`` failed, or did not return a tensor of them.
    """
    flat = split.targets.reshape(len(split), -1)
    extremes = [int(flat.min(axis=1).argmin()), int(flat.max(axis=1).argmax())]
    others = np.linspace(0, len(split) - 1, FEW - 2, dtype=int)
    rows = torch.tensor([*extremes, *others][: len(split)])
    stored = Examples.stored(task, split, CPU, training=training)
    name = "augment" if training and task.augment is not None else "prepare"
    kind = f"inputs {split.inputs.dtype} {(len(rows), *split.inputs.shape[1:])}"
    try:
        with seeded(seed, CPU):
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
        TaskError: There are none for training, or inputs are not finite once they are prepared.
    """
    if not len(data.train):
        raise TaskError("dataset", "there are no training examples")
    for name, split in (("training", data.train), ("test", data.test)):
        _check_finite(task, split, name)
    train = data.train
    targets = f"targets {train.targets.min()} to {train.targets.max()}"
    if train.targets.ndim > 1:
        targets += f" {train.targets.shape[1:]}"
    yield Finding(
        "ok",
        "dataset",
        f"{data.description}: {len(train):,} + {len(data.test):,} examples, inputs "
        f"{train.inputs.dtype} {train.inputs.shape[1:]}, {targets}",
    )


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
