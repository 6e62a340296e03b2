"""The check of what is drawn as examples are read and prepared."""

from typing import Any

import torch

from tasks.base import Task
from tasks.checking.examples import few_examples
from tasks.checking.finding import TaskError
from tasks.data.dataset import Dataset
from tasks.data.map_style import MapStyleSplit
from tasks.structure import leaves

TRIES = 5  # something that is drawn seldom does not differ each time


def check_draws(task: Task, data: Dataset) -> None:
    """Check that the seed fixes the training inputs, and that nothing else is drawn.

    Raises:
        TaskError: It is not so.
    """
    is_read = isinstance(data.train, MapStyleSplit)
    name = "dataset" if is_read else "prepare"
    first, targets = few_examples(task, data.train, training=True)
    for seed in [0] * TRIES + [1]:
        inputs, others = few_examples(task, data.train, training=True, seed=seed)
        if not _same(targets, others):
            text = "gives a training example another target each time: draw inputs only"
            raise TaskError("dataset", text)
        if seed == 0 and not _same(first, inputs):
            text = "gives other inputs under the same seed: draw from the global state of torch, "
            fix = "numpy.random or random, which the seed fixes, not from a generator of its own"
            raise TaskError("augment" if task.augment else name, text + fix)
    if is_read and not len(data.test):
        return
    tested = data.test if len(data.test) else data.train
    tests = [few_examples(task, tested, training=False, seed=seed) for seed in range(TRIES)]
    if not all(_same(tests[0], test) for test in tests):
        text = f"draw in {'the training set' if is_read else 'augment'}, which is for training only"
        raise TaskError(name, f"gives different inputs each time: {text}")


def _same(a: Any, b: Any) -> bool:
    return all(map(torch.equal, leaves(a), leaves(b)))
