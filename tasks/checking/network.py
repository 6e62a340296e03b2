"""Checks of a task's model, loss and metrics, on a few examples."""

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tasks.base import Task, ignored_target, is_cross_entropy
from tasks.checking.examples import CPU, described, few_examples, few_rows
from tasks.checking.finding import Finding, TaskError
from tasks.checking.loss_inputs import check_loss_inputs
from tasks.data.dataset import NO_PREDICTION, Dataset, Split
from tasks.data.map_style import MapStyleSplit
from tasks.metrics import Metric, Ratio, accuracy
from tasks.objective import ACCURACY, show_metric
from tasks.structure import leaves, map_leaves
from tasks.training.examples import call_model, number_of, parts_of
from tasks.training.random_streams import seeded

Outputs = Any  # what a task's model returns
DRAWN = 20  # outputs for which metrics are tried
MIXED = 6  # of these, for metrics of torchmetrics
# Sums of float32 in another order differ by less.
TOLERANCE = 1e-5


def check_network(task: Task, data: Dataset, model: nn.Module) -> Iterator[Finding]:
    """Yield what a pass over a few examples shows.

    Args:
        task: The task.
        data: Its data.
        model: A network of the task, which is not used afterwards: a pass may change it.

    Raises:
        TaskError: The model, the loss or a metric fails, or gives what cannot be right.
    """
    if isinstance(task.loss, nn.Module) and any(
        parameter.requires_grad for parameter in task.loss.parameters()
    ):
        raise TaskError("loss", "has weights of its own, which no client trains: put them in model")
    inputs, targets = few_examples(task, data.train, training=True)
    outputs = forward(model.train(), inputs)
    _check_labels(task, data, outputs)
    loss = _loss(task, outputs, targets)
    kinds = f"outputs {described(outputs)} and targets {described(targets)}"
    yield Finding("ok", "loss", f"{loss:.4g} for {kinds} of the initial model")
    yield from check_loss_inputs(task, inputs, outputs, targets, loss)
    # The training examples of map-style data may be drawn.
    tested = data.test if len(data.test) else data.train
    inputs, targets = few_examples(task, tested, training=False)
    _check_alone(task, tested, inputs)
    outputs = forward(model.eval(), inputs)
    if found := _check_metrics(task, outputs, targets):
        text = f"{', '.join(found)} for {number_of(inputs)} examples"
        yield Finding("ok", "metrics", f"{text}, the same when merged from parts")
    objective = task.default_objective()
    yield Finding("ok", "objective", f"{objective}, which decides the best model and the target")
    if any(getattr(module, "max_norm", None) is not None for module in model.modules()):
        text = "an embedding with max_norm changes its weights in a pass: fedsgd does not send them"
        yield Finding("warning", "model", text)


def _check_alone(task: Task, split: Split, inputs: Any) -> None:
    """Check that an example's input does not depend on those prepared with it."""
    rows = few_rows(split)
    for place in range(min(2, len(rows))):
        alone, _ = few_examples(task, split, training=False, rows=rows[place : place + 1])
        for single, every in zip(leaves(alone), leaves(inputs), strict=True):
            same_shape = single.shape[1:] == every.shape[1:]
            if same_shape and not torch.allclose(single[0], every[place], equal_nan=True):
                text = "gives an example another input with others than alone: "
                raise TaskError("prepare", f"{text}compute each by itself")


def forward(model: nn.Module, inputs: Any, seed: int = 0) -> Outputs:
    """Return the model's outputs, whose draws have the seed; TaskError where it fails."""
    try:
        with seeded(seed, CPU), torch.set_grad_enabled(model.training):
            return call_model(model, inputs)
    except Exception as error:
        kinds = {weight.dtype for weight in model.parameters() if weight.is_floating_point()}
        kind = f"inputs {described(inputs)}"
        if (
            isinstance(inputs, Tensor)
            and inputs.is_floating_point()
            and inputs.dtype not in kinds
            and len(kinds) == 1
        ):
            (own,) = kinds
            text = f"returns {kind} for a model of {_name(own)}: return inputs.to({own})"
            raise TaskError("prepare", text) from error
        raise TaskError("model", f"raised {type(error).__name__} for {kind}: {error}") from error


def _check_labels(task: Task, data: Dataset, outputs: Outputs) -> None:
    """Check that targets are classes of the outputs, where the loss is torch's cross-entropy."""
    if not is_cross_entropy(task.loss):
        return
    if not isinstance(outputs, Tensor):
        text = f"returns {described(outputs)}, and the loss is torch's cross-entropy: return the "
        raise TaskError("model", f"{text}logits, or give a loss and metrics of (outputs, targets)")
    classes = outputs.shape[1] if outputs.dim() > 1 else 0
    ignored = ignored_target(task.loss)
    for split in (data.train, data.test):
        if isinstance(split, MapStyleSplit):
            continue
        if (targets := split.classes) is None:
            given = split.targets
            if isinstance(given, np.ndarray) and given.shape[1:] == outputs.shape[1:]:
                continue  # probabilities of the classes
            kind = given.dtype if isinstance(given, np.ndarray) else described(given)
            text = f"the targets are {kind}, and the loss "
            fix = "is torch's cross-entropy: give classes as int64, or another loss"
            raise TaskError("dataset", text + fix)
        if outputs.shape[1:-1] == targets.shape[1:] != outputs.shape[2:]:
            text = f"returns {described(outputs)} for targets {targets.shape[1:]} an example, and "
            fix = "torch's cross-entropy wants the classes in dimension 1: return it.movedim(-1, 1)"
            raise TaskError("model", text + fix)
        if ignored >= 0 and (targets == ignored).any():
            text = f"targets of {ignored} are ignored by the loss, but count as predictions"
            raise TaskError("dataset", f"{text}: make them {NO_PREDICTION}")
        known = targets[targets != ignored]
        if not known.size or (known.min() >= 0 and known.max() < classes):
            continue
        low, high = known.min(), known.max()
        fix = "number the classes from 0"
        if low > 0 and high - low < classes:
            fix = f"subtract {low} from the targets"
        raise TaskError(
            "dataset",
            f"targets are {low} to {high}, but the model has {classes} outputs, for the classes "
            f"0 to {classes - 1} ({ignored} is no prediction): {fix}",
        )


def _loss(task: Task, outputs: Outputs, targets: Any) -> float:
    """Return the loss; TaskError where it is not a finite number with a gradient."""
    kinds = f"outputs {described(outputs)} and targets {described(targets)}"
    kept = map_leaves(torch.clone, targets)
    try:
        with seeded(0, CPU), warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            loss = task.loss(outputs, targets)
    except Exception as error:
        raise TaskError("loss", f"raised {type(error).__name__} for {kinds}: {error}") from error
    if any("Using a target size" in str(warning.message) for warning in told):
        text = f"has {kinds}, which torch stretches to one shape: give them the same"
        raise TaskError("loss", text)
    if not _same(kept, targets):
        raise TaskError("loss", "changes the targets, which all clients share: work on a copy")
    if not isinstance(loss, Tensor) or loss.dim() or not loss.requires_grad:
        text = f"returned {described(loss)} for {kinds}: return one number, with its gradient"
        raise TaskError("loss", text)
    if not loss.isfinite():
        raise TaskError("loss", f"is {loss.item():g} for the initial model: check inputs and model")
    return loss.item()


def _check_metrics(task: Task, outputs: Outputs, targets: Any) -> list[str]:
    """Return each metric with its value; TaskError where one cannot be right.

    A metric of a batch must be that of its parts, put together.
    """
    kinds = f"outputs {described(outputs)} and targets {described(targets)}"
    default = task.metrics.get(ACCURACY) is accuracy
    if default and not is_cross_entropy(task.loss) and _is_open(outputs):
        text = f"cannot tell which dimension of {kinds} has the classes: give the task's own"
        raise TaskError("metrics", f"accuracy {text}")
    tried = [outputs]
    generator = torch.Generator().manual_seed(0)
    if isinstance(outputs, Tensor) and outputs.is_floating_point():  # some are right by chance
        draw = torch.rand if is_probability(outputs) else torch.randn
        tried += [draw(outputs.shape, generator=generator) for _ in range(DRAWN)]
        for output in tried[1:MIXED]:
            # Where all values of a batch are from 0 to 1, torchmetrics takes them as probabilities.
            half = output[: len(outputs) // 2]
            half.copy_(torch.rand(half.shape, generator=generator))
    found = []
    for name, metric in task.test_metrics().items():
        several = tried if isinstance(metric, Ratio) else tried[:MIXED]
        with warnings.catch_warnings():  # a few examples lack classes
            warnings.simplefilter("ignore")
            values = [_measured(task, name, metric, output, targets, kinds) for output in several]
        found.append(f"{name} {show_metric(name, values[0])}")
    return found


def _measured(
    task: Task, name: str, metric: Metric, outputs: Outputs, targets: Any, kinds: str
) -> float:
    """Return a metric's value, which must be the same where states of parts are put together."""
    kept = map_leaves(torch.clone, targets)
    try:
        predicted = task.predictions(outputs)
        before = map_leaves(torch.clone, predicted) if _is_of_tensors(predicted) else None
        whole = metric.of_batch(predicted, targets)
        value = metric.value([whole])
        if not _same(kept, targets) or (before is not None and not _same(before, predicted)):
            raise ValueError("changes the outputs or the targets, which others get, too")
        if before is None or targets is None:
            return value
        number = number_of(targets)
        size = 1 if isinstance(metric, Ratio) else max(number // 2, 1)
        if any(not leaf.dim() or len(leaf) != number for leaf in leaves(predicted)):
            return value
        parts = zip(parts_of(predicted, size, number), parts_of(targets, size, number), strict=True)
        states = [metric.of_batch(*part) for part in parts]
        together = metric.value(states)
    except Exception as error:
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
        text = f"{name}: {kind}{str(error).removeprefix(f'{name} ')} ({kinds})"
        raise TaskError("metrics", text) from error
    if isinstance(metric, Ratio):
        (total, count), (total1, count1) = (
            [sum(float(state[part]) for state in some) for part in ("sum", "count")]
            for some in ([whole], states)
        )
        if not np.allclose([total, count], [total1, count1], rtol=TOLERANCE, equal_nan=True):
            raise TaskError(
                "metrics",
                f"{name} gives {total:g} of {count:g} for {number} examples, but {total1:g} of "
                f"{count1:g} for the same examples one by one: return sums over the examples, "
                f"of values of one shape ({kinds})",
            )
    elif not np.isnan(together) and not np.isclose(value, together, rtol=1e-3, atol=1e-5):
        text = f"{name} is {value:g} for {number} examples, but {together:g} where the states of "
        fix = "two halves are put together"
        if isinstance(predicted, Tensor) and not is_probability(predicted):
            fix += ": where all values of a batch are from 0 to 1, it takes them as probabilities, "
            fix += "else as logits; give predict=torch.sigmoid, or a softmax"
        raise TaskError("metrics", f"{text}{fix} ({kinds})")
    return value


def is_probability(outputs: Tensor) -> bool:
    """Return whether all values are from 0 to 1."""
    return bool(((outputs >= 0) & (outputs <= 1)).all())


def _same(a: Any, b: Any) -> bool:
    """Return whether two values have the same tensors."""
    return all(
        torch.equal(torch.nan_to_num(first), torch.nan_to_num(other))
        for first, other in zip(leaves(a), leaves(b), strict=True)
        if isinstance(first, Tensor)
    )


def _is_of_tensors(value: Any) -> bool:
    """Return whether a value is a tensor, or a dictionary or tuple of tensors, and no more."""
    return isinstance(value, Tensor) or (
        type(value) in (dict, tuple) and all(isinstance(leaf, Tensor) for leaf in leaves(value))
    )


def _is_open(outputs: Outputs) -> bool:
    """Return whether the classes could be in the last dimension as well as in dimension 1."""
    return (
        isinstance(outputs, Tensor) and outputs.dim() > 2 and outputs.shape[1] == outputs.shape[-1]
    )


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
