"""Checks of a task's data, before the model sees them."""

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tasks.base import Task, ignored_target
from tasks.checking.finding import Finding, TaskError
from tasks.data.dataset import NO_PREDICTION, DataError, Dataset, Split, Stored
from tasks.data.map_style import MapStyleSplit
from tasks.objective import ACCURACY, LOSS
from tasks.structure import leaves
from tasks.training.examples import Examples
from tasks.training.random_streams import seeded

CPU = torch.device("cpu")
FEW = 8
MAX_RATE = 1e6  # as the config's
METRIC_NAME = re.compile(r"[A-Za-z0-9_-]+")


def few_rows(split: Split) -> Tensor:
    """Return `FEW` rows from the whole split, those with the least and the largest target first."""
    extremes = []
    if isinstance(split.targets, np.ndarray):
        flat = split.targets.reshape(len(split), -1)
        extremes = [int(flat.min(axis=1).argmin()), int(flat.max(axis=1).argmax())]
    others = np.linspace(0, len(split) - 1, FEW - len(extremes), dtype=int)
    return torch.tensor([*extremes, *others][: len(split)])


def few_examples(
    task: Task, split: Split, *, training: bool, seed: int = 0, rows: Tensor | None = None
) -> tuple[Any, Any]:
    """Return the prepared inputs and the targets of some examples, by default of `few_rows`.

    What is drawn has the seed.

    Raises:
        TaskError: One cannot be read, or ``prepare`` or ``augment`` failed, or did not return a
            tensor of them.
    """
    rows = few_rows(split) if rows is None else rows
    name = "augment" if training and task.augment is not None else "prepare"
    is_read = isinstance(split, MapStyleSplit)
    kind = f"{len(rows)} examples" if is_read else f"inputs {_kind(split.inputs, len(rows))}"
    try:
        with seeded(seed, CPU):
            stored = Examples.stored(task, split, CPU, training=training)
            inputs, targets = replace(stored, rows=rows).slice(0, len(rows))
    except DataError as error:
        raise TaskError("dataset", str(error)) from error
    except Exception as error:
        raise TaskError(name, f"raised {type(error).__name__} for {kind}: {error}") from error
    found = list(leaves(inputs))
    if not found or not all(isinstance(leaf, Tensor) and len(leaf) == len(rows) for leaf in found):
        text = f"returned {described(inputs)} for {kind}: return a tensor of as many inputs"
        raise TaskError(name, f"{text}, or a tuple or dictionary of such")
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
    if (text := _unlike_labels(train)) is not None:
        yield Finding("warning", "dataset", text)
    if len(test) and _same_examples(train, test):
        text = "the test examples are the training examples: each test measures memorisation"
        yield Finding("warning", "dataset", text)
    is_read = isinstance(train, MapStyleSplit)
    kinds = [
        "read one by one" if isinstance(split, MapStyleSplit) else _kind(split.inputs)
        for split in (train, test if len(test) else train)
    ]
    if kinds[0] != kinds[1]:
        raise TaskError("dataset", f"training inputs are {kinds[0]}, test inputs {kinds[1]}")
    targets = "targets with them" if is_read else "no targets"
    if isinstance(train.targets, np.ndarray):
        targets = f"targets {train.targets.min():.6g} to {train.targets.max():.6g}"
        if train.targets.ndim > 1:
            targets += f" {train.targets.shape[1:]}"
    elif train.targets is not None:
        targets = f"targets {_kind(train.targets)}"
    yield Finding(
        "ok",
        "dataset",
        f"{data.description}: {len(train):,} + {len(test):,} examples, inputs {kinds[0]}, "
        f"{targets}",
    )


def check_settings(task: Task) -> None:
    """Check the numbers that a task gives, and that its loss is one; TaskError else."""
    rate = task.learning_rate
    if not isinstance(rate, float | int) or not 0 < rate <= MAX_RATE:
        raise TaskError("learning_rate", f"is {rate!r}: give a number above 0")
    try:
        task.test_metrics()
    except TypeError as error:
        raise TaskError("metrics", str(error)) from error
    for name in task.metrics:
        if not METRIC_NAME.fullmatch(name) or name == LOSS:
            text = f"has the name {name!r}: give letters, digits, '-' or '_', and not 'loss'"
            raise TaskError("metrics", text)
    if not isinstance(task.optimizer, str):
        kind = type(task.optimizer).__name__
        raise TaskError("optimizer", f"is a {kind}: give its name, or package.module:Class")
    objective = task.default_objective()
    for name, target in (("target", task.target), ("embedded_target", task.embedded_target)):
        if target is not None and not isinstance(target, float | int):
            raise TaskError(name, f"is {target!r}: give a number")
        if target is not None and objective.name == ACCURACY and not 0 <= target <= 1:
            raise TaskError(name, f"is {target!r}: give a share from 0 to 1")
    if inspect.isclass(task.loss):
        raise TaskError("loss", f"is a class: give an object of it, {task.loss.__name__}()")


def _kind(stored: Stored, number: int | None = None) -> str:
    """Return the dtype and the shape of an example, or of so many; of each array where several."""
    if isinstance(stored, Mapping):
        return ", ".join(f"{name} {_kind(array, number)}" for name, array in stored.items())
    shape = stored.shape[1:] if number is None else (number, *stored.shape[1:])
    return f"{stored.dtype} {shape}"


def described(value: object) -> str:
    """Return a tensor's dtype and shape, or what else it is."""
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}"
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    return "none" if value is None else f"a {type(value).__name__}"


def _check_targets(task: Task, split: Split, name: str) -> None:
    """Check that negative targets are no predictions, and that there are predictions."""
    if (targets := split.classes) is None:
        return
    negative = targets[targets < 0]
    allowed = {NO_PREDICTION, ignored_target(task.loss)}
    others = negative[~np.isin(negative, list(allowed))]
    if others.size:
        text = f"there are {name} targets of {others.min()}, and a negative target is no prediction"
        raise TaskError("dataset", f"{text}: number the classes from 0, or give {NO_PREDICTION}")
    if negative.size == targets.size:
        raise TaskError("dataset", f"the {name} examples have no target to be predicted")


def _unlike_labels(split: Split) -> str | None:
    """Return how the labels of examples that are read differ from their targets; None if not."""
    if not isinstance(split, MapStyleSplit) or split.labels is None:
        return None
    for number in few_rows(split).tolist():
        target = np.asarray(split.read(number)[1])
        if target.dtype.kind in "iu" and not target.shape and target != split.labels[number]:
            text = f"example {number} has the target {target}, but the label {split.labels[number]}"
            return f"{text}, by which partitions go"
    return None


def _same_examples(train: Split, test: Split) -> bool:
    if train.inputs is test.inputs:
        return True
    arrays = [list(leaves(split.inputs)) for split in (train, test)]
    return len(train) == len(test) and all(
        isinstance(mine, np.ndarray) and np.array_equal(mine, other)
        for mine, other in zip(*arrays, strict=False)
    )


def _check_finite(task: Task, split: Split, name: str) -> None:
    """Check that inputs are finite, at least once they are prepared, and targets."""
    if isinstance(split, MapStyleSplit):  # they are not all read for this
        prepared, _ = few_examples(task, split, training=False)
        if not all(array.isfinite().all() for array in leaves(prepared)):
            raise TaskError(
                "dataset", f"{name} examples have NaN or infinite inputs: leave them out"
            )
        return
    if bad := _not_finite(split.inputs):
        prepared, _ = few_examples(task, split.part(np.array(bad[:1])), training=False)
        if not all(array.isfinite().all() for array in leaves(prepared)):
            raise TaskError(
                "dataset",
                f"{len(bad)} {name} examples have NaN or infinite inputs, the first is number "
                f"{bad[0]}: leave them out, or fill them in prepare",
            )
    if bad := _not_finite(split.targets):
        text = f"{len(bad)} {name} examples have NaN or infinite targets, the first is number "
        raise TaskError("dataset", f"{text}{bad[0]}: leave them out")


def _not_finite(stored: Stored | None) -> list[int]:
    """Return the numbers of the examples that have values that are not finite."""
    bad: set[int] = set()
    for array in leaves(stored):
        if array.dtype.kind != "f" or not array.size:
            continue
        with np.errstate(invalid="ignore"):
            if np.isfinite(array.min() + array.max()):  # no copy, unlike isfinite of all
                continue
        bad |= {number for number, example in enumerate(array) if not np.isfinite(example).all()}
    return sorted(bad)
