"""Checks of what a task gives: its arrays, numbers and names, its examples, and no others later."""

import re
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from tasks.base import ignored_target
from tasks.checking import Finding, TaskError, calling
from tasks.checking.trial import Trial, few_rows, kind_of, same
from tasks.data.dataset import NO_PREDICTION, Split, leaves
from tasks.data.map_style import MapStyleSplit
from tasks.model_arrays import overlapping, read_arrays, state_of
from tasks.objective import ACCURACY, LOSS
from tasks.training.optimizers import check_optimizer

MAX_RATE = 1e6  # as the config's
METRIC_NAME = re.compile(r"[A-Za-z0-9_-]+")
TRIES = 5  # something that is drawn seldom does not differ each time


def check_arrays(trial: Trial) -> Iterator[Finding]:
    """Yield which arrays are trained, fixed, buffers and aliases.

    Raises:
        TaskError: An array cannot be sent, or the optimiser cannot train them.
    """
    task, model = trial.task, trial.task.initial_model(trial.seed)
    try:
        arrays = trial.arrays
        read_arrays(model, arrays.names)
    except ValueError as error:
        raise TaskError("model", str(error)) from error
    with calling("optimizer", f"for {task.optimizer} with {dict(task.optimizer_args)}"):
        check_optimizer(task.optimizer, task.optimizer_args, model)
    state = state_of(model)

    def described(names: tuple[str, ...]) -> str:
        count = sum(state[name].numel() for name in names)
        kinds = sorted({str(state[name].dtype).removeprefix("torch.") for name in names})
        return f"{len(names)} ({count:,} entries, {', '.join(kinds)})" if names else "0"

    aliases = "".join(f"; {name} is {first}" for name, first in arrays.aliases.items())
    text = f"trained arrays {described(arrays.trained)}, fixed {described(arrays.fixed)}, "
    text += f"buffers {described(arrays.buffers)}, aliases {len(arrays.aliases)}{aliases}"
    yield Finding("ok", "model", text)


def check_network(trial: Trial) -> Iterator[Finding]:
    """Yield warnings of generators in the network, and of weights that share a part of memory."""
    for name, module in trial.initial.named_modules():
        for own, value in vars(module).items():
            if isinstance(value, torch.Generator | np.random.Generator):
                text = f"the generator {f'{name}.{own}'.lstrip('.')} begins anew with every message"
                fix = "draw from the global state of torch or numpy.random, which is seeded"
                yield Finding("warning", "model", f"{text}: {fix}")
    for one, other in overlapping(state_of(trial.initial), trial.arrays.trained):
        text = f"{one} and {other} share memory, but each is sent, and compressed, by itself: "
        yield Finding("warning", "model", f"{text}compute one from the other in forward()")


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
        names = task.test_metrics()
    except TypeError as error:
        raise TaskError("metrics", str(error)) from error
    for name in names:
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
    own = trial.data.validation
    splits = [("training", train), ("test", test), *([("validation", own)] if own else [])]
    for name, split in splits:
        if len(split):
            _check_targets(trial, split.classes, name)
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
    """Yield that data and model are the same each time.

    Raises:
        TaskError: They are not, or there are no test examples.
    """
    task, data = trial.task, trial.data
    if not len(data.test):
        raise TaskError("dataset", "there are no test examples, which every evaluation needs")
    if task.dataset(data.options).digest() != data.digest():
        text = "gives different examples each time: draw a split with a fixed seed, or use "
        raise TaskError("dataset", f"{text}load_cached")
    first, again = (read_arrays(trial.network(), trial.arrays.names) for _ in range(2))
    for name, array in first.items():
        if not np.array_equal(array, again[name], equal_nan=True):
            text = f"gives a different {name!r} each time: draw from torch's global random state"
            raise TaskError("model", text)
    yield Finding("ok", "dataset", "every call gives the same examples, and the same model")


def _check_targets(trial: Trial, classes: NDArray[np.int64] | None, name: str) -> None:
    """Check that negative classes are no predictions, and that there are predictions."""
    if classes is None:
        return
    ignored = ignored_target(trial.task.loss)
    others = classes[(classes < 0) & ~np.isin(classes, [NO_PREDICTION, ignored])]
    if others.size:
        text = f"there are {name} targets of {others.min()}, and a negative target is no prediction"
        raise TaskError("dataset", f"{text}: number the classes from 0, or give {NO_PREDICTION}")
    if classes.max() < 0:
        raise TaskError("dataset", f"the {name} examples have no target to be predicted")
    if ignored >= 0 and (classes == ignored).any():
        text = f"targets of {ignored} are ignored by the loss, but count as predictions"
        raise TaskError("dataset", f"{text}: make them {NO_PREDICTION}")


def _check_finite(trial: Trial, split: Split, name: str) -> None:
    """Check that targets are finite, and inputs at least once they are prepared."""
    if bad := _not_finite(split.targets):
        text = f"the {name} example {bad[0]} has a NaN or infinite target"
        raise TaskError("dataset", f"{text}: leave it out")
    bad = _not_finite(split.inputs)
    prepared, _ = trial.few(split, rows=torch.tensor(bad) if bad else None)
    if not all(array.isfinite().all() for array in leaves(prepared)):
        which = f"example {bad[0]} has" if bad else "examples have"
        text = f"the {name} {which} NaN or infinite inputs"
        raise TaskError("dataset", f"{text}: leave it out, or fill them in prepare")


def _not_finite(stored: object) -> list[int]:
    """Return the number of the first example with a value that is not finite, if there is one."""
    for array in leaves(stored):
        if not isinstance(array, np.ndarray) or array.dtype.kind != "f" or not array.size:
            continue
        # Its least and largest value show it, without another array of its size.
        if not np.isfinite([array.min(), array.max()]).all():
            return next([row] for row, one in enumerate(array) if not np.isfinite(one).all())
    return []


def _check_draws(trial: Trial) -> None:
    """Check that the seed fixes the training inputs, and that nothing else is drawn.

    Raises:
        TaskError: It is not so, or an example's input depends on those prepared with it.
    """
    is_read, task, split = isinstance(trial.data.train, MapStyleSplit), trial.task, trial.tested
    name = "dataset" if is_read else "prepare"
    trained = [trial.few(trial.data.train, training=True, seed=s) for s in [0] * TRIES + [1]]
    if not all(same(trained[0][1], targets) for _, targets in trained):
        text = "gives a training example another target each time: draw inputs only"
        raise TaskError("dataset", text)
    if not all(same(trained[0][0], inputs) for inputs, _ in trained[:TRIES]):
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
