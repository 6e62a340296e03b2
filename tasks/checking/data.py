"""Checks of what a task gives: its numbers and names, its examples, and that they stay the same."""

import re
from collections.abc import Iterator

import numpy as np
import torch

from tasks.base import ignored_target
from tasks.checking import Finding, TaskError
from tasks.checking.trial import Trial, few_rows, kind_of, same
from tasks.data.dataset import NO_PREDICTION, Split, Stored, leaves
from tasks.data.map_style import MapStyleSplit
from tasks.model_arrays import read_arrays, state_of
from tasks.objective import ACCURACY, LOSS

MAX_RATE = 1e6  # as the config's
METRIC_NAME = re.compile(r"[A-Za-z0-9_-]+")
TRIES = 5  # something that is drawn seldom does not differ each time
READ_AT_A_TIME = 1000


def check_settings(trial: Trial) -> Iterator[Finding]:
    """Yield the objective; TaskError where a number or a name of the task cannot be right."""
    task = trial.task
    rate = task.learning_rate
    if not isinstance(rate, float | int) or not 0 < rate <= MAX_RATE:
        raise TaskError("learning_rate", f"is {rate!r}: give a number above 0")
    if not isinstance(task.optimizer, str):
        kind = type(task.optimizer).__name__
        raise TaskError("optimizer", f"is a {kind}: give its name, or package.module:Class")
    try:
        task.test_metrics()
    except TypeError as error:
        raise TaskError("metrics", str(error)) from error
    for name in task.metrics:
        if not METRIC_NAME.fullmatch(name) or name == LOSS:
            text = f"has the name {name!r}: give letters, digits, '-' or '_', and not 'loss'"
            raise TaskError("metrics", text)
    objective = task.default_objective()
    for name, target in (("target", task.target), ("embedded_target", task.embedded_target)):
        if target is not None and objective.name == ACCURACY and not 0 <= target <= 1:
            raise TaskError(name, f"is {target!r}: give a share from 0 to 1")
    yield Finding("ok", "objective", f"{objective}, which decides the best model and the target")


def check_examples(trial: Trial) -> Iterator[Finding]:
    """Yield what the data are.

    Raises:
        TaskError: There are none for training, those for testing are of another kind, inputs or
            targets are not finite, a target is negative that is not no prediction, or what is drawn
            is not what the seed fixes.
    """
    train, test = trial.data.train, trial.data.test
    if not len(train):
        raise TaskError("dataset", "there are no training examples")
    for name, split in (("training", train), ("test", test)):
        if len(split):
            _check_targets(trial, split, name)
            _check_finite(trial, split, name)
    kinds = kind_of(train), kind_of(trial.tested)
    if kinds[0] != kinds[1]:
        raise TaskError("dataset", f"training inputs are {kinds[0]}, test inputs {kinds[1]}")
    if list(train.sampled()) == list(test.sampled()):
        text = "the test examples are the training examples: each test measures memorisation"
        yield Finding("warning", "dataset", text)
    _check_draws(trial)
    text = f"{trial.data.description}: {len(train):,} + {len(test):,} examples, inputs {kinds[0]}"
    if isinstance(targets := train.targets, np.ndarray):
        text += f", targets {targets.min():.6g} to {targets.max():.6g}"
        text += f" {targets.shape[1:]}" if targets.ndim > 1 else ""
    yield Finding("ok", "dataset", text)


def check_loads(trial: Trial) -> Iterator[Finding]:
    """Yield that data and model are the same each time; TaskError where they are not."""
    task, data = trial.task, trial.data
    if task.dataset(data.options).digest() != data.digest():
        text = "gives different examples each time: draw a split with a fixed seed, or use "
        raise TaskError("dataset", f"{text}load_cached")
    models = [task.initial_model(trial.seed) for _ in range(2)]
    first, again = (read_arrays(model, tuple(state_of(model))) for model in models)
    for name, array in first.items():
        if not np.array_equal(array, again[name], equal_nan=True):
            text = f"gives a different {name!r} each time: draw from torch's global random state"
            raise TaskError("model", text)
    yield Finding("ok", "dataset", "every call gives the same examples, and the same model")


def _check_targets(trial: Trial, split: Split, name: str) -> None:
    """Check that negative targets are no predictions, and that there are predictions."""
    if (targets := split.classes) is None:
        return
    ignored = ignored_target(trial.task.loss)
    others = targets[(targets < 0) & ~np.isin(targets, [NO_PREDICTION, ignored])]
    if others.size:
        text = f"there are {name} targets of {others.min()}, and a negative target is no prediction"
        raise TaskError("dataset", f"{text}: number the classes from 0, or give {NO_PREDICTION}")
    if targets.max() < 0:
        raise TaskError("dataset", f"the {name} examples have no target to be predicted")
    if ignored >= 0 and (targets == ignored).any():
        text = f"targets of {ignored} are ignored by the loss, but count as predictions"
        raise TaskError("dataset", f"{text}: make them {NO_PREDICTION}")


def _check_finite(trial: Trial, split: Split, name: str) -> None:
    """Check that targets are finite, and inputs at least once they are prepared."""
    fix = "leave it out"
    if (bad := _not_finite(split.targets)) is not None:
        text = f"the {name} example {bad} has a NaN or infinite target"
        raise TaskError("dataset", f"{text}: {fix}")
    bad = _not_finite(split.inputs)
    if bad is not None or isinstance(split, MapStyleSplit):  # which are not all read for this
        prepared, _ = trial.few(split, rows=None if bad is None else torch.tensor([bad]))
        if not all(array.isfinite().all() for array in leaves(prepared)):
            which = "examples have" if bad is None else f"example {bad} has"
            text = f"the {name} {which} NaN or infinite inputs"
            raise TaskError("dataset", f"{text}: {fix}, or fill them in prepare")


def _not_finite(stored: Stored | None) -> int | None:
    """Return the number of the first example with a value that is not finite; None for none."""
    for array in leaves(stored):
        if not isinstance(array, np.ndarray) or array.dtype.kind != "f":
            continue
        for start in range(0, len(array), READ_AT_A_TIME):
            part = array[start : start + READ_AT_A_TIME]
            finite = np.isfinite(part).reshape(len(part), -1).all(axis=1)
            if not finite.all():
                return start + int(finite.argmin())
    return None


def _check_draws(trial: Trial) -> None:
    """Check that the seed fixes the training inputs, and that nothing else is drawn.

    Raises:
        TaskError: It is not so, or an example's input depends on those prepared with it.
    """
    is_read, task, split = isinstance(trial.data.train, MapStyleSplit), trial.task, trial.tested
    name = "dataset" if is_read else "prepare"
    first, targets = trial.few(trial.data.train, training=True)
    for seed in [0] * TRIES + [1]:
        inputs, others = trial.few(trial.data.train, training=True, seed=seed)
        if not same(targets, others):
            text = "gives a training example another target each time: draw inputs only"
            raise TaskError("dataset", text)
        if seed == 0 and not same(first, inputs):
            text = "gives other inputs under the same seed: draw from the global state of torch, "
            fix = "numpy.random or random, which the seed fixes, not from a generator of its own"
            raise TaskError("augment" if task.augment else name, text + fix)
    if is_read and not len(trial.data.test):
        return
    tests = [trial.few(split, seed=seed) for seed in range(TRIES)]
    if not all(same(tests[0], test) for test in tests):
        text = f"draw in {'the training set' if is_read else 'augment'}, which is for training only"
        raise TaskError(name, f"gives different inputs each time: {text}")
    alone, _ = trial.few(split, rows=few_rows(split)[:1])
    for one, every in zip(leaves(alone), leaves(tests[0][0]), strict=True):
        # A batch's inputs may be as long as its longest.
        if one.shape[1:] == every.shape[1:] and not same(one[0], every[0], 1e-5):
            text = "gives an example another input with others than alone: compute each by itself"
            raise TaskError("prepare", text)
