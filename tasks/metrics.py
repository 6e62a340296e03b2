"""Metrics of a test: how well a model's outputs fit the targets.

Each batch gives a state, such as a sum and a count. States are put together over batches, processes
and clients before the value is computed, so no metric is a mean of means.
"""

import logging
import math
import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tasks.objective import ACCURACY

logger = logging.getLogger("fedavg_app.metrics")

# What a batch adds to a metric, by name.
State = dict[str, NDArray[np.generic]]
# (outputs, targets) -> the sum and the count, whose quotient is the metric.
SumAndCount = Callable[[Any, Any], tuple[float | Tensor, float | Tensor]]


def accuracy(logits: Tensor, targets: Tensor, classes: int = -1) -> tuple[Tensor, Tensor]:
    """Return how many targets are the largest logit, and how many are not negative.

    Args:
        logits: The model's outputs, in one dimension those of the classes.
        targets: The classes, of the shape of the logits without that dimension; a negative one is
            no prediction.
        classes: That dimension.

    Raises:
        ValueError: The targets have another shape, or are no classes.
    """
    if targets.is_floating_point():
        text = f"the default accuracy is of classes, and the targets are {targets.dtype}: give the "
        raise ValueError(f"{text}task's own metrics")
    predicted = logits.argmax(dim=classes)
    if predicted.shape != targets.shape:
        raise ValueError(
            f"the default accuracy takes the largest logit of the last dimension, which gives "
            f"{tuple(predicted.shape)} predictions of logits {tuple(logits.shape)}, for targets "
            f"{tuple(targets.shape)}: give the task's own metrics"
        )
    return (predicted == targets).sum(), (targets >= 0).sum()


class Metric(ABC):
    """A metric of a test.

    Attributes:
        higher_is_better: Its direction; None if unknown.
    """

    higher_is_better: bool | None = None

    @abstractmethod
    def of_batch(self, outputs: Any, targets: Any) -> State:
        """Return the state of a batch.

        Raises:
            ValueError: It cannot be right.
        """

    @abstractmethod
    def value(self, states: Sequence[State]) -> float:
        """Return the metric over all batches of these states, of which there is at least one."""

    @abstractmethod
    def parts(self) -> dict[str, bool]:
        """Return the names of a state's arrays, and whether their shape is always the same."""


class Ratio(Metric):
    """A metric that is a sum over a count.

    Args:
        name: Its name: an accuracy counts predictions.
        function: Returns both for a batch.
    """

    def __init__(self, name: str, function: SumAndCount) -> None:
        self._name, self._function = name, function
        self.higher_is_better = True if name == ACCURACY else None

    def of_batch(self, outputs: Any, targets: Any) -> State:
        """Return the batch's "sum" and "count", float64 ()."""
        found = self._function(outputs, targets)
        try:
            total, count = map(float, found)
        except (TypeError, ValueError) as error:
            text = f"{self._name} returned a {type(found).__name__}: return a sum and a count"
            raise ValueError(text) from error
        if self._name == ACCURACY and not (0 <= total <= count and total == int(total)):
            kinds = f"the targets are {tuple(getattr(targets, 'shape', ()))}"
            raise ValueError(
                f"accuracy counts {total:g} of {count:g} predictions: give the number of those "
                f"whose prediction is the target, of one shape ({kinds})"
            )
        return {"sum": np.array(total), "count": np.array(count)}

    def parts(self) -> dict[str, bool]:
        """Return the names of sum and count, which are single numbers."""
        return {"sum": True, "count": True}

    def value(self, states: Sequence[State]) -> float:
        """Return the sum of the sums over that of the counts; NaN where nothing was counted."""
        total = count = 0.0
        for state in states:
            total += float(state["sum"])
            count += float(state["count"])
        return total / count if count else math.nan


class TorchMetric(Metric):
    """A metric of the library torchmetrics, put together as it does between processes.

    Args:
        metric: The `torchmetrics.Metric`, which is not changed.
    """

    def __init__(self, metric: Any) -> None:
        self._metric = metric.clone()
        self.higher_is_better = metric.higher_is_better

    def of_batch(self, outputs: Any, targets: Any) -> State:
        """Return the metric's own states after the batch; those that are lists as one array."""
        from torchmetrics.utilities import dim_zero_cat

        metric = self._metric.to(targets.device)
        metric.reset()
        metric.update(outputs, targets)
        found = {}
        for name, state in metric.metric_state.items():
            joined = dim_zero_cat(state) if isinstance(state, list) and state else state
            found[name] = np.zeros(0, np.float32) if joined == [] else joined.cpu().numpy()
        return found

    def parts(self) -> dict[str, bool]:
        """Return the names of the metric's states; those that are lists grow with the batch."""
        self._metric.reset()
        return {
            name: not isinstance(state, list) for name, state in self._metric.metric_state.items()
        }

    def value(self, states: Sequence[State]) -> float:
        """Return the metric; ValueError if it is not a single number."""
        metric = self._metric.to("cpu")
        metric.reset()
        for name, state in metric.metric_state.items():
            own = torch.tensor(states[0][name])
            setattr(metric, name, [own] if isinstance(state, list) else own)
        names = iter(states[0])

        def gather(_: Tensor, group: object = None) -> list[Tensor]:
            del group
            name = next(names)
            return [torch.tensor(state[name]) for state in states]

        metric.dist_sync_fn, metric.distributed_available_fn = gather, lambda: True
        with warnings.catch_warnings():  # it was never updated here
            warnings.filterwarnings("ignore", "The ``compute`` method")
            found = metric.compute()
        if not isinstance(found, Tensor) or found.numel() != 1:
            kind = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise ValueError(f"gives {kind}, not one number: choose an average")
        return float(found)


def value_or_nan(
    name: str, metric: Metric, states: Sequence[State], *, of_client: bool = False
) -> float:
    """Return a metric's value; NaN if these states have none, such as an R2 of one example.

    What the metric warns of is logged, each text once in a process.

    Args:
        name: Its name.
        metric: The metric.
        states: Of all batches.
        of_client: Whether these are the examples of one client: a value of which the metric warns,
            such as an AUROC whose targets lack a class, says nothing about it, and is NaN, too.
    """
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        try:
            value = metric.value(states)
        except Exception as error:
            logger.debug("%s has no value for %d batches: %s", name, len(states), error)
            return math.nan
    for warning in warned:
        _warn_once(f"{name}: {warning.message}")
    return math.nan if of_client and warned else value


@lru_cache
def _warn_once(text: str) -> None:
    logger.warning(text)


def make_metric(name: str, given: Any) -> Metric:
    """Return what a task gives as a metric: a `Metric`, a function, or a metric of torchmetrics.

    Raises:
        TypeError: It is none of these.
    """
    if isinstance(given, Metric):
        return given
    library = sys.modules.get("torchmetrics")  # imported by whoever uses its metrics
    if library is not None and isinstance(given, library.Metric):
        return TorchMetric(given)
    if isinstance(given, type) or not callable(given):
        kind = f"the class {given.__name__}" if isinstance(given, type) else type(given).__name__
        fix = "give a function of (outputs, targets), or an object of a torchmetrics class"
        raise TypeError(f"{name} is {kind}: {fix}")
    return Ratio(name, given)
