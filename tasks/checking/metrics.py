"""The check of metrics: what a metric gives for a batch must be that of its parts, put together."""

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tasks.base import Task, is_cross_entropy
from tasks.checking import Finding, TaskError
from tasks.checking.loss import loss_of
from tasks.checking.trial import Trial, copies, forward, is_probability, kinds_of, same
from tasks.data.dataset import leaves
from tasks.metrics import Metric, accuracy
from tasks.objective import ACCURACY, show_metric
from tasks.training.examples import chosen_of, number_of

DRAWN = 6  # outputs for which metrics are tried besides the model's: some are right by chance
FIRST = 3  # examples of the first of two parts
RELATIVE, ABSOLUTE = 1e-3, 1e-5  # sums in another order differ by less


def check_metrics(trial: Trial) -> Iterator[Finding]:
    """Yield the metrics of the initial model; TaskError where one, or the loss, cannot be right."""
    task = trial.task
    inputs, targets = trial.few(trial.tested)
    outputs = forward(trial.network().eval(), inputs)
    loss_of(trial, outputs, targets)
    kinds, shape = kinds_of(outputs, targets), tuple(getattr(outputs, "shape", ()))
    is_default = task.metrics.get(ACCURACY) is accuracy and not is_cross_entropy(task.loss)
    if is_default and len(shape) > 2 and shape[1] == shape[-1]:
        text = f"accuracy cannot tell which dimension of {kinds} has the classes"
        raise TaskError("metrics", f"{text}: give the task's own")
    found = []
    for name, metric in task.test_metrics().items():
        try:
            with warnings.catch_warnings():  # a few examples lack classes
                warnings.simplefilter("ignore")
                value, *_ = [
                    _measured(task, metric, some, targets) for some in (outputs, *_drawn(outputs))
                ]
        except Exception as error:
            kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
            text = f"{name}: {kind}{str(error).removeprefix(f'{name} ')}"
            raise TaskError("metrics", f"{text} ({kinds})") from error
        found.append(f"{name} {show_metric(name, value)}")
    if found:
        text = f"{', '.join(found)} for {number_of(inputs)} examples"
        yield Finding("ok", "metrics", f"{text}, the same when merged from parts")


def _measured(task: Task, metric: Metric, outputs: Any, targets: Any) -> float:
    """Return a metric's value.

    Raises:
        ValueError: It is another where states of parts are put together, or the metric changes what
            it is given.
    """
    given = task.predict(outputs) if task.predict else outputs, targets
    before = copies(given)
    value = metric.value([metric.of_batch(*given)])
    if not same(before, tuple(leaves(given))):
        raise ValueError("changes the outputs or the targets, which others get, too")
    sizes = {getattr(leaf, "shape", (None,))[:1] for leaf in leaves(given)}
    if type(given[0]) not in (Tensor, dict, tuple) or len(sizes) > 1:
        return value  # an object of another kind cannot be cut
    (number,) = sizes.pop()
    parts = [chosen_of(given, rows) for rows in (slice(FIRST), slice(FIRST, None))]
    together = metric.value([metric.of_batch(*part) for part in parts if number_of(part)])
    if np.isnan(together) or np.isclose(value, together, RELATIVE, ABSOLUTE):
        return value
    text = f"gives {value:g} for {number} examples, but {together:g} where the states of two parts "
    fix = "are put together: return sums over the examples, of values of one shape"
    if isinstance(given[0], Tensor) and not is_probability(given[0]):
        fix += "; for torchmetrics, which takes a batch with values from 0 to 1 alone as "
        fix += "probabilities, give predict=torch.sigmoid, or a softmax"
    raise ValueError(text + fix)


def _drawn(outputs: Any) -> list[Tensor]:
    """Return random outputs of the same shape, the first part of a batch from 0 to 1."""
    if not isinstance(outputs, Tensor) or not outputs.is_floating_point():
        return []
    generator = torch.Generator().manual_seed(0)
    draw = torch.rand if is_probability(outputs) else torch.randn
    drawn = [draw(outputs.shape, generator=generator) for _ in range(DRAWN)]
    for some in drawn[: DRAWN // 2]:
        some[:FIRST] = torch.rand(some[:FIRST].shape, generator=generator)
    return drawn
